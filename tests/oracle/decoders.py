"""What the cases of decoder families have in common: a family's four classes over one small config of odd sizes."""
import torch

from harness import Case, text_batch, text_batches

PACKED = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 0, 1]]).expand(3, -1)  # three sequences in one row
packed = lambda: {**text_batch(labels="lm", seq=9), "position_ids": PACKED}
# Longer than every window here: with padding, and with a prompt that is longer than the window, too.
LONG = {padding: lambda padding=padding: text_batch(padding=padding, labels="lm", seq=13) for padding in ("none", "left", "right")}


class Family:
    """`classes`: the body, for causal language, for sequences, for tokens. `case`: what holds for all of its cases."""

    def __init__(self, prefix, config, classes, small, **case):
        self.prefix, self.config, self.classes, self.small, self.case = prefix, config, classes, small, case

    def make(self, name, cls, batches, full=True, causal=False, train=True, half=True, **config):
        build = lambda: cls(self.config(**{**self.small, **config}))
        return Case(f"{self.prefix}-{name}", build, batches, causal=causal, train=train, full=full, half=half, **self.case)

    def lm(self, name, batches=None, **options):
        return self.make(name, self.classes[1], batches or text_batches("lm"), causal=True, **options)

    def heads(self, full_tokens=True, **config):
        """One case for each other class. Dropout is 0: training mode is compared number by number."""
        return [
            self.make("body", self.classes[0], text_batches(None), causal=True, train=False, **config),
            self.make("class", self.classes[2], text_batches("class"), num_labels=3, pad_token_id=1, **config),
            self.make("tokens", self.classes[3], text_batches("tokens"), full=full_tokens, num_labels=3, classifier_dropout=0.0, **config),
        ]
