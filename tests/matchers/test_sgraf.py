"""SGR, SAF and SGRAF against recorded numbers of the published code."""

import pytest
import torch
from torch import Tensor, nn

from truepair.errors import TruepairError
from truepair.interop import matcher_from_published
from truepair.matchers.alignment import nodes_by_length
from truepair.matchers.blocks import text_blocks
from truepair.matchers.graph import rows_of_pairs
from truepair.matchers.sgraf import SAF, SGR, SGRAF, Filtration, SGRConfig, logit_of_mean

CLOSE = {"atol": 1e-5, "rtol": 1e-4}


def near(ours: Tensor, recorded: Tensor) -> None:
    torch.testing.assert_close(ours.detach(), recorded, **CLOSE)


@pytest.fixture(params=["sgr", "saf"])
def kind(request):
    return request.param


@pytest.fixture
def recorded(oracle, kind):
    return {name: torch.tensor(value) for name, value in oracle(kind).items()}


@pytest.fixture
def matcher(oracle, kind, published_weights):
    return matcher_from_published(kind, published_weights(oracle(kind)), dropout=0.0)


def encode(matcher, recorded):
    images = matcher.encode_images(recorded["images"])
    return images, matcher.encode_texts(recorded["captions"], recorded["lengths"])


def nodes_of_text(matcher, images, texts, column):
    """The alignment vectors of every image with one text, n x (length + 1) x s."""
    (block,) = text_blocks(texts.take(torch.tensor([column])))
    (nodes,) = nodes_by_length(*matcher.alignments(images, block), block)
    return nodes[:, 0]


def test_embeddings(matcher, recorded):
    images, texts = encode(matcher, recorded)
    near(images.regions, recorded["img_local"])
    near(texts.words, recorded["cap_local"])
    near(images.vectors, recorded["img_global"])
    near(texts.vectors, recorded["cap_global"])


def test_alignment_vectors(matcher, recorded):
    images, texts = encode(matcher, recorded)
    near(nodes_of_text(matcher, images, texts, 0), recorded["sim_emb_cap0_input"])
    whole = [nodes_of_text(matcher, images, texts, j)[:, 0] for j in range(len(texts))]
    near(torch.stack(whole, dim=1), recorded["node0_input"])


def test_similarities(matcher, recorded):
    similarity = matcher.similarity(*encode(matcher, recorded))
    near(similarity, recorded["sims"])
    # The original release needs texts sorted by length; its matrix is the same with its columns permuted.
    near(similarity[:, recorded["sorted_order"]], recorded["original_sgraf_sims_sorted"])


def test_logits_are_the_published_scores_before_the_sigmoid(oracle, published_weights):
    """ReCon's release calls the same network without its last step."""
    recorded = {name: torch.tensor(value) for name, value in oracle("recon_relation").items()}
    matcher = matcher_from_published("sgr", published_weights(oracle("recon_relation"), "model."))
    images, texts = encode(matcher, recorded)
    near(images.vectors, recorded["img_global"])
    near(texts.vectors, recorded["cap_global"])
    near(matcher.logits(images, texts), recorded["raw_scores"])
    near(matcher.score(recorded["raw_scores"]), matcher.similarity(images, texts))


def test_training_mode_and_its_running_statistics(matcher, recorded):
    matcher.train()
    near(matcher.similarity(*encode(matcher, recorded)), recorded["trainmode_sims"])
    names = {
        "sim_enc.v_global_w.embedding_local.1": matcher.image_pooling.local[1],
        "sim_enc.v_global_w.embedding_global.1": matcher.image_pooling.mean[1],
    }
    if isinstance(matcher, SAF):
        names["sim_enc.SAF_module.bn"] = matcher.filtration.norm
    for name, norm in names.items():
        for buffer in ("running_mean", "running_var", "num_batches_tracked"):
            near(getattr(norm, buffer), recorded[f"after_trainmode__{name}.{buffer}"])


def test_graph_steps(oracle, published_weights):
    recorded = {name: torch.tensor(value) for name, value in oracle("sgr").items()}
    matcher = matcher_from_published("SGR", published_weights(oracle("sgr")))
    assert isinstance(matcher, SGR)
    images, texts = encode(matcher, recorded)
    for column in range(len(texts)):
        nodes = nodes_of_text(matcher, images, texts, column)
        for i, step in enumerate(matcher.steps, start=1):
            rows, layout = rows_of_pairs([nodes])
            first = step(rows, layout, step.folded(), first_only=True)[: len(nodes)]
            nodes = step(rows, layout, step.folded())[: nodes.shape[0] * nodes.shape[1]].view_as(nodes)
            near(nodes[:, 0], recorded[f"sgr_step{i}_node0"][:, column])
            near(first, nodes[:, 0].detach())
            score = matcher.score(matcher.evaluation(nodes[:, 0])).squeeze(1)
            near(score, recorded[f"sgr_step{i}_score"][:, column])
            if column == 0:
                near(nodes, recorded[f"sgr_step{i}_cap0_nodes"])


def test_filtration(oracle, published_weights):
    recorded = {name: torch.tensor(value) for name, value in oracle("saf").items()}
    matcher = matcher_from_published("SAF", published_weights(oracle("saf")))
    images, texts = encode(matcher, recorded)
    norm = matcher.filtration.norm
    for column in range(len(texts)):
        nodes = nodes_of_text(matcher, images, texts, column)
        scores = matcher.filtration.scores(nodes)
        filtered = matcher.filtration(nodes, scores, norm.running_mean, norm.running_var)
        near(filtered, recorded["saf_vec"][:, column])


def test_running_statistics_move_as_in_a_loop_over_texts():
    torch.manual_seed(0)
    ours, loop = Filtration(4), nn.BatchNorm1d(1)
    batches = [torch.randn(5, 1, words) * 3 + 1 for words in (2, 7, 4, 2)]
    for batch in batches:
        loop(batch)
    means = torch.stack([b.mean() for b in batches])
    variances = torch.stack([b.var(correction=0) for b in batches])
    ours.remember(means, variances, torch.tensor([b.numel() for b in batches]))
    for buffer in ("running_mean", "running_var", "num_batches_tracked"):
        torch.testing.assert_close(getattr(ours.norm, buffer), getattr(loop, buffer))


def test_saf_pairs_in_training_have_the_values_of_the_matrix_and_move_nothing(make_matcher, make_batch):
    matcher, batch = make_matcher("saf").train(), make_batch("saf")
    for module in matcher.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    images, texts = batch.codes(matcher)
    rows, columns = torch.tensor([0, 3, 3, 5]), torch.tensor([7, 0, 7, 2])
    before = matcher.filtration.norm.running_mean.clone()
    pairs = matcher.pair_logits(images, texts, rows, columns)
    assert torch.equal(matcher.filtration.norm.running_mean, before)
    torch.testing.assert_close(pairs, matcher.logits(images, texts)[rows, columns], atol=1e-6, rtol=0)
    assert not torch.equal(matcher.filtration.norm.running_mean, before)


def test_sgraf_is_the_mean_of_both_scores(make_matcher, make_batch):
    matcher, batch = make_matcher("sgraf"), make_batch("sgraf")
    assert isinstance(matcher, SGRAF)
    halves = [half.similarity(*batch.codes(half)) for half in (matcher.sgr, matcher.saf)]
    images, texts = batch.codes(matcher)
    torch.testing.assert_close(matcher.similarity(images, texts), sum(halves) / 2, atol=1e-6, rtol=0)
    cosines = [
        half.image_vectors(i) @ half.text_vectors(t).T
        for half, (i, t) in ((half, batch.codes(half)) for half in (matcher.sgr, matcher.saf))
    ]
    both = matcher.image_vectors(images) @ matcher.text_vectors(texts).T
    torch.testing.assert_close(both, sum(cosines) / 2, atol=1e-6, rtol=0)


def test_logit_of_mean_is_exact_where_sigmoids_are_flat():
    a, b = torch.tensor([60.0, -60.0, 0.0, 3.0]), torch.tensor([60.0, -60.0, 0.0, -1.0])
    mean = (a.double().sigmoid() + b.double().sigmoid()) / 2
    expected = torch.tensor([60.0, -60.0, 0.0, float((mean / (1 - mean)).log()[3])])
    torch.testing.assert_close(logit_of_mean(a, b), expected)


def test_slot_norm_refuses_another_number_of_regions():
    matcher = SGR(SGRConfig(8, 9, 4, 8, similarity=4, region_norm="slot", region_slots=5)).eval()
    matcher.encode_images(torch.randn(2, 5, 8))
    with pytest.raises(TruepairError, match=r"exactly 5 regions.*come with 4.*region_norm='layer'"):
        matcher.encode_images(torch.randn(2, 4, 8))


def test_slot_norm_depends_on_the_order_of_regions_as_published(matcher, recorded):
    backwards = matcher.encode_images(recorded["images"].flip(1)).vectors
    assert (backwards - recorded["img_global"]).abs().max() > 1e-4


def test_block_size_does_not_change_results(make_matcher, make_batch, monkeypatch, kind):
    from truepair.matchers import blocks

    matcher, batch = make_matcher(kind), make_batch(kind, images=9, texts=23)
    codes = batch.codes(matcher)
    whole = matcher.similarity(*codes)
    monkeypatch.setitem(blocks.BLOCK_NUMBERS, "cpu", 200)
    monkeypatch.setattr(blocks.text_blocks, "__defaults__", (11,))
    assert len(list(text_blocks(codes[1]))) > 4
    torch.testing.assert_close(matcher.similarity(*codes), whole, atol=1e-6, rtol=0)
    rows, columns = torch.arange(9), torch.arange(9)
    torch.testing.assert_close(
        matcher.pair_similarity(*codes, rows, columns), whole.diagonal(), atol=1e-6, rtol=0
    )


def test_equals_the_loop_over_texts(make_matcher, make_batch, plain, kind):
    matcher, batch = make_matcher(kind).double(), make_batch(kind)
    images = matcher.encode_images(batch.regions.double())
    texts = matcher.encode_texts(batch.tokens, batch.lengths)
    loop = plain.similarity(matcher, images, texts)
    # Ours leaves out one of the published additions of 1e-8 to a length.
    torch.testing.assert_close(matcher.similarity(images, texts), loop, atol=1e-8, rtol=0)


def test_training_gradients_equal_those_of_the_loop(make_matcher, make_batch, plain, kind):
    matcher, batch = make_matcher(kind).double().train(), make_batch(kind)
    for module in matcher.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    weights = torch.randn(len(batch.regions), len(batch.tokens), dtype=torch.float64)

    def gradients(similarity):
        matcher.zero_grad()
        images = matcher.encode_images(batch.regions.double())
        texts = matcher.encode_texts(batch.tokens, batch.lengths)
        (similarity(images, texts) * weights).sum().backward()
        return {label: p.grad.clone() for label, p in matcher.named_parameters()}

    ours = gradients(matcher.similarity)
    theirs = gradients(lambda images, texts: plain.similarity(matcher, images, texts))
    scale = max(gradient.abs().max().item() for gradient in theirs.values())
    assert scale > 1e-2
    for label, gradient in theirs.items():
        assert (ours[label] - gradient).abs().max() < 1e-7 * scale, label


class TestSixOptimiserSteps:
    """The published training function of NCR: three warm-up steps, three with soft labels and hard negatives."""

    @staticmethod
    def loss(similarity: Tensor, labels: Tensor | None) -> Tensor:
        margin = 0.2 if labels is None else 0.2 * (10**labels - 1) / 9
        n = len(similarity)
        given = similarity.diagonal()
        apart = ~torch.eye(n, dtype=torch.bool)
        to_text = (margin + similarity - given[:, None]).clamp_min(0) * apart
        to_image = (margin + similarity - given[None]).clamp_min(0) * apart
        if labels is None:
            return to_text.mean(1).sum() + to_image.mean(0).sum()
        return to_text.amax(1).sum() + to_image.amax(0).sum()

    @pytest.fixture
    def recorded(self, oracle):
        return {name: torch.tensor(value) for name, value in oracle("sgr_train_step").items()}

    @pytest.fixture
    def matcher(self, oracle, published_weights):
        weights = published_weights(oracle("sgr_train_step"), "init__")
        return matcher_from_published("sgr", weights, dropout=0.0).train()

    @staticmethod
    def compared(matcher):
        """The recorded weights under their published names."""
        return {
            "sim_enc.sim_eval_w.weight": matcher.evaluation.weight,
            "img_enc.fc.weight": matcher.image_encoder.fc.weight,
            "txt_enc.cap_rnn.weight_hh_l0_reverse": matcher.text_encoder.rnn.weight_hh_l0_reverse,
            "sim_enc.SGR_module.1.graph_key_w.weight": matcher.steps[1].key.weight,
            "txt_enc.embed.weight": matcher.text_encoder.embed.weight,
        }

    @pytest.mark.parametrize("only_needed_pairs", [False, True])
    def test_weights(self, matcher, recorded, only_needed_pairs):
        optimizer = torch.optim.Adam(matcher.parameters(), lr=2e-4)
        ours = self.compared(matcher)
        for i in range(6):
            images = matcher.encode_images(recorded[f"images_{i}"])
            texts = matcher.encode_texts(recorded[f"captions_{i}"], recorded[f"lengths_{i}"])
            labels = recorded.get(f"labels_{i}")
            if only_needed_pairs and labels is not None:
                similarity = self.graph_for_hardest_only(matcher, images, texts, labels)
            else:
                similarity = matcher.similarity(images, texts)
            loss = self.loss(similarity, labels)
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(matcher.parameters(), 2.0)
            optimizer.step()
            torch.testing.assert_close(loss.detach(), recorded["losses"][i], atol=0, rtol=1e-5)
            torch.testing.assert_close(norm, recorded["grad_norm_before_clip"][i], atol=0, rtol=1e-4)
            stage = {0: "after_step1__", 2: "after_step3__", 5: "final__"}.get(i)
            for name, weight in ours.items() if stage else ():
                if f"{stage}{name}" in recorded:
                    torch.testing.assert_close(weight.data, recorded[f"{stage}{name}"], atol=1e-5, rtol=0)
        for name, norm in (
            ("embedding_local", matcher.image_pooling.local[1]),
            ("embedding_global", matcher.image_pooling.mean[1]),
        ):
            buffer = f"final__sim_enc.v_global_w.{name}.1.running"
            near(norm.running_var, recorded[f"{buffer}_var"])
            # The published bias before this norm has no gradient but rounding errors, and Adam walks along them.
            drift = {"atol": 1e-4, "rtol": 0}
            torch.testing.assert_close(norm.running_mean, recorded[f"{buffer}_mean"], **drift)

    def test_double_precision(self, matcher, recorded):
        matcher.double()
        optimizer = torch.optim.Adam(matcher.parameters(), lr=2e-4)
        for i in range(6):
            images = matcher.encode_images(recorded[f"images_{i}"].double())
            texts = matcher.encode_texts(recorded[f"captions_{i}"], recorded[f"lengths_{i}"])
            labels = recorded.get(f"labels_{i}")
            loss = self.loss(matcher.similarity(images, texts), None if labels is None else labels.double())
            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(matcher.parameters(), 2.0)
            optimizer.step()
            assert loss.item() == pytest.approx(recorded["losses_doublerun"][i].item(), rel=1e-6)
            assert norm.item() == pytest.approx(
                recorded["grad_norm_before_clip_doublerun"][i].item(), rel=1e-6
            )
        for name, weight in self.compared(matcher).items():
            expected = recorded[f"final_doublerun__{name}"].double()
            torch.testing.assert_close(weight.data, expected, atol=1e-6, rtol=0)

    def graph_for_hardest_only(self, matcher, images, texts, labels):
        """All similarities without a graph, then again with one for the pairs that the loss looks at."""
        with torch.no_grad():
            full = matcher.similarity(images, texts)
            margin = 0.2 * (10**labels - 1) / 9
            n = len(full)
            apart = torch.where(torch.eye(n, dtype=torch.bool), -torch.inf, 0.0)
            hard = torch.eye(n, dtype=torch.bool)
            hard[torch.arange(n), (full + margin - full.diagonal()[:, None] + apart).argmax(1)] = True
            hard[(full + margin - full.diagonal()[None] + apart).argmax(0), torch.arange(n)] = True
            rows, columns = hard.nonzero(as_tuple=True)
        return full.index_put((rows, columns), matcher.pair_similarity(images, texts, rows, columns))
