import torch

from truepair.pairs.augment import Augmentation


def batch(m: int = 400, t: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, t + 1, (m,), generator=generator)
    tokens = torch.arange(100, 100 + t).repeat(m, 1)
    return tokens.masked_fill(torch.arange(t) >= lengths[:, None], 0), lengths


def test_shares_of_words_are_the_published_ones():
    tokens, lengths = batch(4000)
    altered, left = Augmentation(0.2, vocabulary_size=50, masked=3).texts(tokens, lengths, seed=1)
    words = int(lengths.sum())
    removed = words - int(left.sum())
    masked = int((altered == 3).sum())
    drawn = int(((altered > 0) & (altered < 50)).sum()) - masked
    # 40 %, 50 % and 10 % of a fifth; four standard deviations of a binomial count are below 0.01 here. Some of the
    # random words are the masked one, and the only word of a text is never removed.
    assert abs(removed / words - 0.08) < 0.01
    assert abs(masked / words - 0.10) < 0.01
    assert abs(drawn / words - 0.02) < 0.006


def test_what_is_left_keeps_its_order_and_padding():
    tokens, lengths = batch()
    altered, left = Augmentation(0.5, vocabulary_size=50, masked=3).texts(tokens, lengths, seed=2)
    assert altered.shape[1] == left.max()
    assert (left >= 1).all()
    for row, length in zip(altered, left, strict=True):
        assert (row[length:] == 0).all()
        assert (row[:length] > 0).all()
        unchanged = row[row >= 100]
        assert (unchanged.diff() > 0).all()


def test_every_image_keeps_a_real_region():
    mask = torch.rand(300, 6, generator=torch.Generator().manual_seed(3)) < 0.4
    mask[:, 2] = True
    kept = Augmentation(0.9).regions(mask, seed=4)
    assert kept.any(1).all()
    assert not (kept & ~mask).any()
    whole = Augmentation(0.2).regions(torch.ones(2000, 36, dtype=torch.bool), seed=5)
    assert abs(float(whole.float().mean()) - 0.8) < 0.01


def test_a_seed_decides_everything():
    tokens, lengths = batch()
    augmentation = Augmentation(0.3, vocabulary_size=50)
    first, again, other = (augmentation.texts(tokens, lengths, seed)[0] for seed in (7, 7, 8))
    assert torch.equal(first, again)
    assert first.shape != other.shape or not torch.equal(first, other)


def test_text_vectors_are_left_alone():
    vectors, lengths = torch.randn(5, 8), torch.ones(5, dtype=torch.long)
    same, _ = Augmentation(0.2).texts(vectors, lengths, seed=1)
    assert same is vectors
