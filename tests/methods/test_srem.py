import math

import pytest
import torch

from truepair.beliefs.ledger import Partition
from truepair.methods.srem import SREM

CLEAN, NOISY = int(Partition.CLEAN), int(Partition.NOISY)


# The paper, written out for one direction: rows ask, columns answer. Everything is a list of lists.


def transposed(matrix):
    return [list(row) for row in zip(*matrix, strict=True)]


def energy(row):
    return -math.log(sum(math.exp(f) for f in row))


def mismatched_weight(logits):
    """The mean over rows and columns of the logarithm of what their mismatches add up to."""
    sides = (*logits, *transposed(logits))
    mismatches = [[f for j, f in enumerate(row) if j != i % len(logits)] for i, row in enumerate(sides)]
    return sum(-energy(row) for row in mismatches) / len(mismatches)


def clean_rows(logits, tau):
    return [energy(row) < tau and row[i] == max(row) for i, row in enumerate(logits)]


def bound(logits, clean, m_clean, m_noisy):
    """Eq. 3: two expectations."""
    below = [max(0, energy(row) - m_clean) ** 2 for row, good in zip(logits, clean, strict=True) if good]
    above = [max(0, m_noisy - energy(row)) ** 2 for row, good in zip(logits, clean, strict=True) if not good]
    return sum(below) / max(1, len(below)) + sum(above) / max(1, len(above))


def hardest(row, i):
    return max(value for j, value in enumerate(row) if j != i)


def weights(logits, scores, alpha):
    """Eq. 4-5."""
    result = []
    for i, row in enumerate(logits):
        total = sum(math.exp(f) for f in row)
        share = [math.exp(f) / total for f in row]
        entropy = -sum(p * math.log(p) for p in share) / math.log(len(row))
        unsettled = alpha - scores[i][i] + hardest(scores[i], i) > 0
        result.append(1 - entropy * unsettled)
    return result


def ranking(scores, swapped, clean, alpha, average):
    """Eq. 6, with the other side's weights."""
    hinges = [
        max(0, alpha - swapped[i] * row[i] + hardest(row, i)) for i, row in enumerate(scores) if clean[i]
    ]
    return sum(hinges) / (len(scores) if average == "batch" else max(1, len(hinges)))


def complementary(answers, clean, beta, b, reading):
    """Eq. 9-13 with a weight per complementary label, or with the same for all."""
    n, total = len(answers), 0.0
    for i, row in enumerate(answers):
        out = {i}
        if clean is not None and clean[i]:
            out |= {j for j in range(n) if j != i and row[j] == hardest(row, i)}
        below = 1 + sum(math.exp(beta * (row[k] - b)) for k in range(n) if k != i)
        chance = {j: math.exp(beta * (row[j] - b)) / below for j in range(n) if j not in out}
        whole = sum(math.exp(p) for p in chance.values())
        for j, p in chance.items():
            weight = math.exp(p) / whole if reading == "weighted" else 1 / len(chance)
            total -= weight * math.log(1 - row[j])
    return total / n


def probabilities(scores, tau):
    """Matching probabilities by rows."""
    return [[math.exp(s / tau) / sum(math.exp(t / tau) for t in row) for s in row] for row in scores]


def both_complementary(scores, clean, method):
    sides = (scores, transposed(scores))
    if method.answers == "probabilities":
        sides = tuple(probabilities(side, method.temperature) for side in sides)
    terms = len(scores) - 1 if method.answers == "probabilities" else 1
    return terms * sum(
        complementary(side, trusted, method.steepness, method.base, method.reading)
        for side, trusted in zip(sides, clean, strict=True)
    )


@pytest.fixture
def sigmoid_batch(make_batch):
    """Logits between -4 and 4."""
    return make_batch(sigmoid=True)


def expected_loss(logits, scores, method):
    sides = (logits, transposed(logits))
    clean = [clean_rows(side, method.energy_threshold) for side in sides]
    assert any(clean[0]), "the test needs a pair on either side"
    assert not all(clean[0])
    image_weights = weights(logits, scores, method.margin)
    text_weights = weights(sides[1], transposed(scores), method.margin)
    ranked = ranking(scores, text_weights, clean[0], method.margin, method.average)
    ranked += ranking(transposed(scores), image_weights, clean[1], method.margin, method.average)
    bounded = sum(
        bound(side, trusted, method.clean_energy, method.noisy_energy)
        for side, trusted in zip(sides, clean, strict=True)
    )
    complement = both_complementary(scores, clean, method)
    return (
        method.ranking * 0.5 * ranked
        + method.bounding * method.energy_weight * bounded
        + method.complementary * method.complement_weight * complement
    )


SWITCHES = [
    {},
    {"ranking": False},
    {"bounding": False},
    {"complementary": False},
    {"reading": "uniform"},
    {"average": "batch"},
    {"answers": "scores"},
    {"energy_weight": 0.7, "complement_weight": 0.3, "margin": 0.4},
]


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
def test_the_loss_is_the_printed_sum(sigmoid_batch, make_ledger, later, switches):
    method = SREM(energy_threshold=-3.2, temperature=0.3, **switches)
    loss = method.loss(sigmoid_batch.step(later), make_ledger()).mean().detach()
    logits = sigmoid_batch.similarity.double()
    expected = expected_loss(logits.tolist(), logits.sigmoid().tolist(), method)
    assert float(loss) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
def test_cosines_are_stretched_to_logits(batch, make_ledger, later, switches):
    method = SREM(energy_threshold=-1, temperature=0.3, **switches)
    loss = method.loss(batch.step(later), make_ledger()).mean().detach()
    scores = batch.similarity.double()
    positive = scores.clamp(min=0) if method.answers == "scores" else scores
    stretched = (20 * scores).tolist()
    level = mismatched_weight(stretched)
    logits = [[f - level for f in row] for row in stretched]
    if method.answers == "scores" and method.complementary:
        without = SREM(energy_threshold=-1, temperature=0.3, **{**switches, "complementary": False})
        clean = [clean_rows(side, -1) for side in (logits, transposed(logits))]
        expected = expected_loss(logits, scores.tolist(), without)
        expected += method.complement_weight * both_complementary(positive.tolist(), clean, method)
    else:
        expected = expected_loss(logits, scores.tolist(), method)
    assert float(loss) == pytest.approx(expected, rel=1e-4)


def test_the_warm_up_is_complementary_learning_alone(sigmoid_batch, make_ledger, warming_up):
    ledger = make_ledger()
    before = {name: column.clone() for name, column in ledger.columns().items()}
    method = SREM(ranking=False, temperature=0.3)
    loss = method.loss(sigmoid_batch.step(warming_up), ledger).mean().detach()
    scores = sigmoid_batch.similarity.double().sigmoid().tolist()
    assert float(loss) == pytest.approx(both_complementary(scores, (None, None), method), rel=1e-4)
    assert all(torch.equal(column, before[name]) for name, column in ledger.columns().items())


def test_the_division_is_written_down(sigmoid_batch, make_ledger, later):
    ledger = make_ledger(networks=1)
    SREM(energy_threshold=-3.2).loss(sigmoid_batch.step(later), ledger)
    logits = sigmoid_batch.similarity.double()
    by_image = clean_rows(logits.tolist(), -3.2)
    by_text = clean_rows(logits.T.tolist(), -3.2)
    expected = [CLEAN if a and b else NOISY for a, b in zip(by_image, by_text, strict=True)]
    assert ledger.partition[0].tolist() == expected
    answer = (probabilities(logits.tolist(), 1), probabilities(logits.T.tolist(), 1))
    belief = [(answer[0][i][i] + answer[1][i][i]) / 2 for i in range(9)]
    assert ledger.clean[0].tolist() == pytest.approx(belief, rel=1e-4)
    assert ledger.correspondence[0].tolist() == pytest.approx(belief, rel=1e-4)


def test_it_needs_no_look_over_all_pairs(make_ledger, later):
    assert not SREM().wants_sweep(later)
    (stream,) = SREM().streams(make_ledger(), 0, later)
    assert len(stream.pairs) == 9


def test_a_belief_belongs_to_the_pair_not_to_its_place(batch, make_ledger, later):
    order = torch.tensor([4, 8, 0, 2, 7, 1, 6, 3, 5])
    pairs = torch.tensor([10, 3, 7, 1, 19, 0, 5, 2, 12])
    straight, shuffled = make_ledger(20, 1), make_ledger(20, 1)
    loss = SREM().loss(batch.step(later, pairs), straight)
    moved = SREM().loss(batch.shuffled(order).step(later, pairs[order]), shuffled)
    torch.testing.assert_close(moved, loss[order])
    torch.testing.assert_close(shuffled.clean, straight.clean)
    assert torch.equal(shuffled.partition, straight.partition)
