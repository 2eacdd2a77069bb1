import numpy as np
import pytest
import torch
from PIL import Image

from truepair.errors import TruepairError
from truepair.features.embed import embed_source
from truepair.features.extractors import make_extractor
from truepair.features.huggingface import MOST_ROWS, grid_of
from truepair.pairs.readers import load_pairs

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def tiny_clip(tmp_path_factory):
    """A randomly initialised CLIP of a few thousand weights, as a folder."""
    folder = tmp_path_factory.mktemp("clip")
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    config = transformers.CLIPConfig(
        text_config={**small, "vocab_size": 20, "max_position_embeddings": 8},
        vision_config={**small, "image_size": 32, "patch_size": 8},
        projection_dim=8,
    )
    model = transformers.CLIPModel(config)
    model.save_pretrained(folder)
    side = {"height": 32, "width": 32}
    processor = transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=side)
    processor.save_pretrained(folder)
    return folder, model, processor


def photos(count):
    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)) for _ in range(count)]


def test_pooled_vector_and_grid_of_a_local_clip(tiny_clip):
    folder, model, processor = tiny_clip
    pictures = photos(3)
    features = make_extractor(f"hf:{folder}").describe(pictures)
    assert features.shape == (3, 1 + 16, 16)
    with torch.no_grad():
        expected = model.vision_model.eval()(**processor(images=pictures, return_tensors="pt"))
    np.testing.assert_allclose(features[:, 0], expected.pooler_output, atol=1e-5)
    np.testing.assert_allclose(features[:, 1:], expected.last_hidden_state[:, 1:], atol=1e-5)


def test_a_plain_vision_model(tmp_path):
    config = transformers.ViTConfig(
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=24,
        patch_size=8,
    )
    transformers.ViTModel(config).save_pretrained(tmp_path)
    transformers.ViTImageProcessor(size={"height": 24, "width": 24}).save_pretrained(tmp_path)
    assert make_extractor(f"hf:{tmp_path}").describe(photos(2)).shape == (2, 1 + 9, 8)


def test_many_batches_equal_one(tiny_clip, monkeypatch):
    extractor = make_extractor(f"hf:{tiny_clip[0]}")
    pictures = photos(5)
    whole = extractor.describe(pictures)
    monkeypatch.setattr("truepair.features.huggingface.BATCH", 2)
    np.testing.assert_allclose(extractor.describe(pictures), whole, atol=1e-5)


def test_fine_grids_are_averaged_and_class_tokens_left_out():
    grid = torch.arange(14 * 14, dtype=torch.float32).reshape(1, 196, 1).expand(1, 196, 2)
    hidden = torch.cat([torch.full((1, 5, 2), 1e6), grid], dim=1)  # a class token and four registers
    regions = grid_of(hidden)
    assert regions.shape == (1, MOST_ROWS**2, 2)
    assert regions[0, 0, 0] == (0 + 1 + 14 + 15) / 4
    assert regions.max() < 196


def test_feature_maps_of_convolutions():
    assert grid_of(torch.zeros(2, 8, 3, 5)).shape == (2, 15, 8)


def test_errors_name_the_remedy(tmp_path):
    with pytest.raises(TruepairError, match=r"config\.json"):
        make_extractor(f"hf:{tmp_path}")
    with pytest.raises(TruepairError, match="patches, and hf:"):
        make_extractor("clip")
    with pytest.raises(TruepairError, match="patches, and hf:"):
        make_extractor("hf:")


def test_text_models_are_refused(tmp_path):
    config = transformers.BertConfig(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=9
    )
    transformers.BertModel(config).save_pretrained(tmp_path)
    with pytest.raises(TruepairError):
        make_extractor(f"hf:{tmp_path}")


def test_a_data_folder_of_clip_regions(tiny_clip, tmp_path, pictures_in):
    names = pictures_in(tmp_path / "pictures", 5)
    (tmp_path / "pictures" / "captions.tsv").write_text(
        "path\ttext\n" + "".join(f"{name}\ta picture\n" for name in names)
    )
    name = f"hf:{tiny_clip[0]}"
    summary = embed_source(tmp_path / "pictures", tmp_path / "data", extractor=name, split="train")
    assert (summary["regions"], summary["width"], summary["whitening_fitted_on"]) == (17, 16, None)
    assert not (tmp_path / "data" / "whitening.npz").exists()
    pictures = [Image.open(tmp_path / "pictures" / name) for name in names]
    expected = make_extractor(name).describe(pictures)
    np.testing.assert_allclose(load_pairs(tmp_path / "data").images, expected, atol=2e-3)
