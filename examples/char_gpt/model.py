"""A GPT: pre-norm transformer blocks, learned positions, the output tied to the embedding."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from examples.char_gpt.dataset import VOCABULARY


class Block(nn.Module):
    """Causal self-attention, then a perceptron, each beside a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.perceptron = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, width) -> the same shape."""
        batch, length, width = x.shape
        parts = self.attention(self.attention_norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, length, width))
        transformed: torch.Tensor = x + self.perceptron(x)
        return transformed


class GPT(nn.Module):
    """Predicts the next character."""

    def __init__(self, *, width: int, layers: int, heads: int, length: int, seed: int) -> None:
        super().__init__()
        self.length = length
        self.characters = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, VOCABULARY, bias=False)
        self.output.weight = self.characters.weight
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                # Scaled by the number of inputs: GPT-2's 0.02 suits a width of 1,600; with it a narrow model learns
                # nothing for hundreds of steps. Layers that add to the residual stream start smaller, as in GPT-2.
                deviation = parameter.shape[1] ** -0.5
                if "projection" in name or "perceptron.3" in name:
                    deviation /= (2 * layers) ** 0.5
                nn.init.normal_(parameter, std=deviation, generator=generator)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        """(batch, length) -> (batch, length, VOCABULARY) scores."""
        places = torch.arange(characters.shape[1], device=characters.device)
        x = self.characters(characters) + self.positions(places)
        scores: torch.Tensor = self.output(self.norm(self.blocks(x)))
        return scores

    def loss(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy in nats per character."""
        return functional.cross_entropy(self(inputs).flatten(0, 1), targets.flatten())
