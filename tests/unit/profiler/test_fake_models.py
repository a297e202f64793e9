"""Models that look at numbers while they are built, built of fake tensors all the same."""

import pytest
import torch
from torch import nn

from hocket.errors import HocketError
from hocket.profiler import derive, fake, make_step
from hocket.profiler.derived_target import load_target


@pytest.mark.parametrize(
    "initializer",
    ["trunc_normal_", "kaiming_uniform_", "xavier_normal_", "orthogonal_", "uniform_", "zeros_", "eye_"],
)
def test_initializers_take_fake_tensors(initializer):
    with fake():
        layer = nn.Linear(8, 8)
        assert getattr(nn.init, initializer)(layer.weight) is layer.weight
    weight = torch.empty(8, 8)
    assert getattr(nn.init, initializer)(weight).isfinite().all()


def test_rows_of_rates_keep_their_values():
    with fake():
        rates = [each.item() for each in torch.linspace(0, 0.1, 11)]
        stages = [each.tolist() for each in torch.linspace(0, 1, 6).split([2, 4])]
        ranks = torch.arange(4).tolist()
    assert rates == pytest.approx([k / 100 for k in range(11)])
    assert stages == [pytest.approx([0, 0.2]), pytest.approx([0.4, 0.6, 0.8, 1.0])]
    assert ranks == [0, 1, 2, 3]


class Block(nn.Module):
    """A block as vision transformers have it: stochastic depth by rates, attention, an MLP."""

    def __init__(self, rate):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(16), nn.Linear(16, 48)
        self.out, self.rate = nn.Linear(16, 16), rate
        nn.init.trunc_normal_(self.out.weight, std=0.02)

    def forward(self, x):
        q, k, v = self.attention(self.norm(x)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1 * self.training)
        return x + self.out(mixed.transpose(1, 2).flatten(2)) * (1 - self.rate)


class Blocks(nn.Module):
    """A few blocks, whose model returns its loss and takes keywords."""

    def __init__(self):
        super().__init__()
        rates = torch.linspace(0, 0.1, 3)
        self.blocks = nn.ModuleList([Block(each.item()) for each in rates])

    def forward(self, images, labels=None):
        for block in self.blocks:
            images = block(images)
        return {"loss": nn.functional.cross_entropy(images.mean(1), labels)}


def test_a_model_with_rates_keywords_and_its_own_loss_is_derived():
    with fake():
        model = Blocks()
        batch = {"images": torch.randn(4, 9, 16), "labels": torch.randint(16, (4,))}
        setup = model, batch, None, torch.optim.AdamW(model.parameters())
    graph = derive(make_step(*setup), device="a100")
    assert graph.produced.all()
    assert graph.num_parameters == len(list(model.parameters()))
    # Dropout is in attention's kernel on GPUs.
    names = [name.rpartition("/")[2] for name in graph.operation_names if "/blocks.0" in name]
    assert any("attention" in name for name in names)
    assert not any("bernoulli" in name for name in names)


@pytest.mark.parametrize("kind", ["Bert", "GPT2", "ViT"])
def test_models_of_transformers_are_built_and_derived(kind):
    transformers = pytest.importorskip("transformers")
    with fake():
        if kind == "ViT":
            config = transformers.ViTConfig(num_hidden_layers=1, hidden_size=64, num_attention_heads=2)
            model = transformers.ViTForImageClassification(config)
            batch = {"pixel_values": torch.randn(2, 3, 224, 224), "labels": torch.zeros(2, dtype=torch.long)}
        else:
            tokens = torch.randint(100, (2, 16))
            batch = {"input_ids": tokens, "labels": tokens}
            if kind == "Bert":
                config = transformers.BertConfig(num_hidden_layers=1, hidden_size=64, num_attention_heads=2)
                model = transformers.BertForMaskedLM(config)
            else:
                config = transformers.GPT2Config(n_layer=1, n_embd=64, n_head=2)
                model = transformers.GPT2LMHeadModel(config)
        setup = model, batch, None, torch.optim.AdamW(model.parameters())
    graph = derive(make_step(*setup), device="h100", batch_size=2)
    assert graph.durations_s.sum() > 0
    assert sum(graph.parameter_bytes) == sum(4 * each.numel() for each in model.parameters())


def test_a_model_is_not_built_again_where_what_its_function_returns_is_refused(tmp_path):
    built = tmp_path / "built"
    path = tmp_path / "wrong.py"
    path.write_text(
        "from torch import nn, zeros\n\ndef job():\n"
        f"    open({str(built)!r}, 'a').write('built ')\n"
        "    return nn.Linear(4, 2), zeros(1, 4), 'no loss'\n"
    )
    with pytest.raises(HocketError, match="returned 3 values"):
        load_target(f"{path}:job", 1)
    assert built.read_text() == "built "


def test_a_model_that_needs_values_is_built_of_real_tensors(tmp_path):
    path = tmp_path / "values.py"
    path.write_text(
        "from torch import nn, rand\n\ndef job():\n"
        "    width = 2 if rand(4).sum().item() >= 0 else 3\n"
        "    return nn.Linear(4, width), rand(1, 4), None, None\n"
    )
    assert load_target(f"{path}:job", 1).batch_size == 1
