"""Train a byte-level language model on one CPU core for a fixed budget. This is the file to improve.

The model reads the last CONTEXT bytes through an embedding, mixes them in DEPTH residual MLP blocks and
predicts the next byte. Everything here may change, as long as `python train.py --predict` answers the evaluator;
prepare.py, which owns the data, the clock and the score, may not.
"""

import math
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

# One slot is one core, and numpy's libraries read these when they are imported. More threads would gain
# nothing: the budget counts the CPU seconds of all of them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")

import numpy as np
import numpy.typing as npt
from prepare import MAX_CONTEXT, VOCAB, cpu_seconds, evaluate_bpb, get_batch, load_text, read_budget

try:
    from nightjar_report import report  # type: ignore[import-not-found]  # a Nightjar worker puts it on the path
except ImportError:
    # Run by hand, there is nobody to report to. Under a worker the real one may raise SystemExit, which ends
    # a hopeless run early: let it pass.
    def report(metric: float, progress: float) -> None:
        pass


# ---- What to tune ------------------------------------------------------------------------------------------

DEPTH = 1  # residual blocks
WIDTH = 48  # of the residual stream
EXPANSION = 2  # hidden width of a block, in multiples of WIDTH
EMBED = 6  # numbers per context byte
CONTEXT = 4  # bytes the model sees, at most MAX_CONTEXT
ACTIVATION = "tanh"  # relu, relu2, gelu, silu or tanh
INIT_SCALE = 1.0  # weights start at INIT_SCALE / sqrt(fan in)

BATCH_SIZE = 256
OPTIMIZER = "adam"  # adam, lion or sgd
LEARNING_RATE = 0.001  # at the top of the schedule
BETA1 = 0.9  # momentum
BETA2 = 0.999  # memory of adam's second moment (of lion's momentum)
WEIGHT_DECAY = 0.1  # decoupled, matrices only
GRAD_CLIP = 1.0  # largest global gradient norm; 0 switches it off
WARMUP = 0.2  # share of the budget spent ramping up
WARMDOWN = 0.0  # share of the budget spent ramping down
FINAL_LR = 0.05  # where the ramp down ends, as a share of LEARNING_RATE

SEED = 1337

# ---- The budget --------------------------------------------------------------------------------------------

# CPU seconds of training. A swarm's worker writes each run's budget here. NIGHTJAR_BUDGET_S, which a lab's worker
# sets, comes before it: a run gains nothing by a longer time of its own.
TOTAL_WALL_CLOCK_TIME = 5
TIME_BUDGET = read_budget(os.environ.get("NIGHTJAR_BUDGET_S"), TOTAL_WALL_CLOCK_TIME)

# ---- The model ---------------------------------------------------------------------------------------------

REPORTS = 20  # one every twentieth of the budget; none at the end, where stopping would only lose the result
WEIGHTS = "weights.npz"  # what a training leaves for `python train.py --predict`
HOPELESS_LOSS = 100.0  # nats per byte; guessing blindly costs 5.5
NORM_EPSILON = 1e-6

Floats = npt.NDArray[np.floating]
Bytes = npt.NDArray[np.uint8]
Params = dict[str, Floats]


@dataclass(frozen=True)
class Model:
    """The shape of the network; its weights travel separately, as Params."""

    depth: int = DEPTH
    width: int = WIDTH
    expansion: int = EXPANSION
    embed: int = EMBED
    context: int = CONTEXT
    activation: str = ACTIVATION

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"ACTIVATION is {self.activation!r}; choose one of {sorted(ACTIVATIONS)}")
        if not 1 <= self.context <= MAX_CONTEXT:
            raise ValueError(f"CONTEXT is {self.context!r}; the evaluator shows 1 to {MAX_CONTEXT} bytes")


def init_params(
    model: Model, rng: np.random.Generator, dtype: npt.DTypeLike = np.float32, scale: float = INIT_SCALE
) -> Params:
    """Gaussian weights, zero biases. Matrices are (inputs, outputs)."""

    def matrix(inputs: int, outputs: int) -> Floats:
        return (rng.standard_normal((inputs, outputs)) * (scale / math.sqrt(inputs))).astype(dtype)

    hidden = model.expansion * model.width
    params: Params = {
        "embed": rng.standard_normal((VOCAB, model.embed)).astype(dtype),
        "mix": matrix(model.context * model.embed, model.width),
    }
    for layer in range(model.depth):
        params[f"up{layer}"] = matrix(model.width, hidden)
        params[f"up_bias{layer}"] = np.zeros(hidden, dtype)
        params[f"down{layer}"] = matrix(hidden, model.width)
    params["head"] = matrix(model.width, VOCAB)
    params["head_bias"] = np.zeros(VOCAB, dtype)
    return params


@dataclass
class ForwardTrace:
    """What the forward pass keeps for the backward pass; B rows each, one entry per block in the lists."""

    contexts: Bytes
    mixed: Floats  # embeddings side by side, (B, context * embed)
    normed: list[Floats]  # (B, width), the last one feeds the head
    scales: list[Floats]  # (B, 1)
    before: list[Floats]  # (B, expansion * width), into the activation
    after: list[Floats]  # the same, out of it


def forward(model: Model, params: Params, contexts: Bytes) -> tuple[Floats, ForwardTrace]:
    """Logits (B, VOCAB) of the byte after each context (B, model.context)."""
    activate, _ = ACTIVATIONS[model.activation]
    mixed = params["embed"][contexts].reshape(len(contexts), -1)
    trace = ForwardTrace(contexts, mixed, [], [], [], [])
    stream = mixed @ params["mix"]
    for layer in range(model.depth):
        trace.before.append(keep_norm(trace, stream) @ params[f"up{layer}"] + params[f"up_bias{layer}"])
        trace.after.append(activate(trace.before[layer]))
        stream = stream + trace.after[layer] @ params[f"down{layer}"]
    return keep_norm(trace, stream) @ params["head"] + params["head_bias"], trace


def backward(model: Model, params: Params, trace: ForwardTrace, d_logits: Floats) -> Params:
    """Gradient of every parameter, given the loss's gradient at the logits (B, VOCAB)."""
    _, slope = ACTIVATIONS[model.activation]
    grads = {"head": trace.normed[-1].T @ d_logits, "head_bias": d_logits.sum(axis=0)}
    d_stream = rms_norm_grad(d_logits @ params["head"].T, trace.normed[-1], trace.scales[-1])
    for layer in reversed(range(model.depth)):
        before, after = trace.before[layer], trace.after[layer]
        grads[f"down{layer}"] = after.T @ d_stream
        d_before = (d_stream @ params[f"down{layer}"].T) * slope(before, after)
        grads[f"up{layer}"] = trace.normed[layer].T @ d_before
        grads[f"up_bias{layer}"] = d_before.sum(axis=0)
        d_normed = d_before @ params[f"up{layer}"].T
        d_stream = d_stream + rms_norm_grad(d_normed, trace.normed[layer], trace.scales[layer])
    grads["mix"] = trace.mixed.T @ d_stream
    grads["embed"] = embed_grad(trace.contexts, d_stream @ params["mix"].T, model.embed)
    return grads


def keep_norm(trace: ForwardTrace, stream: Floats) -> Floats:
    normed, scale = rms_norm(stream)
    trace.normed.append(normed)
    trace.scales.append(scale)
    return normed


def rms_norm(x: Floats) -> tuple[Floats, Floats]:
    """Rows of `x` at root mean square one, and the factor (B, 1) that brought them there."""
    scale = 1 / np.sqrt((x * x).mean(axis=1, keepdims=True) + NORM_EPSILON)
    normed: Floats = x * scale
    return normed, scale


def rms_norm_grad(d_normed: Floats, normed: Floats, scale: Floats) -> Floats:
    d_x: Floats = scale * (d_normed - normed * (d_normed * normed).mean(axis=1, keepdims=True))
    return d_x


def embed_grad(contexts: Bytes, d_mixed: Floats, embed: int) -> Floats:
    """Sum over every place a byte occurs: (VOCAB, embed)."""
    cells = contexts.astype(np.int64)[:, :, None] * embed + np.arange(embed)
    summed = np.bincount(cells.ravel(), weights=d_mixed.ravel(), minlength=VOCAB * embed)
    grad: Floats = summed.reshape(VOCAB, embed).astype(d_mixed.dtype)
    return grad


def log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_probs: Floats = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return log_probs


def loss_and_grads(model: Model, params: Params, contexts: Bytes, targets: Bytes) -> tuple[float, Params]:
    """Mean cross-entropy in nats per byte, and its gradients."""
    logits, trace = forward(model, params, contexts)
    log_probs = log_softmax(logits)
    rows = np.arange(len(targets))
    d_logits = np.exp(log_probs)
    d_logits[rows, targets] -= 1
    return -float(log_probs[rows, targets].mean()), backward(model, params, trace, d_logits / len(targets))


# ---- Activations: the function of x, and its slope given x and the function's value ------------------------


def gelu_gate(x: Floats) -> Floats:
    """tanh approximation, Hendrycks & Gimpel 2016 (arXiv:1606.08415), section 2."""
    return 0.5 * (1 + np.tanh(0.7978845608 * x * (1 + 0.044715 * x * x)))


def gelu_slope(x: Floats, _: Floats) -> Floats:
    gate = gelu_gate(x)
    slope: Floats = gate + 2 * x * gate * (1 - gate) * 0.7978845608 * (1 + 0.134145 * x * x)
    return slope


def sigmoid(x: Floats) -> Floats:
    value: Floats = 0.5 * (1 + np.tanh(0.5 * x))
    return value


def silu_slope(x: Floats, y: Floats) -> Floats:
    return y + sigmoid(x) * (1 - y)


ACTIVATIONS: dict[str, tuple[Callable[[Floats], Floats], Callable[[Floats, Floats], Floats]]] = {
    "relu": (lambda x: np.maximum(x, 0), lambda x, _: (x > 0).astype(x.dtype)),
    "relu2": (lambda x: np.maximum(x, 0) ** 2, lambda x, _: 2 * np.maximum(x, 0)),
    "gelu": (lambda x: x * gelu_gate(x), gelu_slope),
    "silu": (lambda x: x * sigmoid(x), silu_slope),
    "tanh": (np.tanh, lambda _, y: 1 - y * y),
}

# ---- Optimisers: the direction to step in, given the gradient and the running moments ----------------------


def adam_direction(grad: Floats, first: Floats, second: Floats, step: int) -> Floats:
    """Kingma & Ba 2015 (arXiv:1412.6980), algorithm 1; `step` counts from 1."""
    first += (1 - BETA1) * (grad - first)
    second += (1 - BETA2) * (grad * grad - second)
    direction: Floats = (first / (1 - BETA1**step)) / (np.sqrt(second / (1 - BETA2**step)) + 1e-8)
    return direction


def lion_direction(grad: Floats, first: Floats, second: Floats, step: int) -> Floats:
    """Chen et al. 2023 (arXiv:2302.06675), algorithm 2."""
    direction = np.sign(first + (1 - BETA1) * (grad - first))
    first += (1 - BETA2) * (grad - first)
    return direction


def sgd_direction(grad: Floats, first: Floats, second: Floats, step: int) -> Floats:
    """Nesterov momentum, as Sutskever et al. 2013 rewrite it."""
    first *= BETA1
    first += grad
    return grad + BETA1 * first


OPTIMIZERS = {"adam": adam_direction, "lion": lion_direction, "sgd": sgd_direction}


class Optimizer:
    """Running moments of every parameter; `step` moves the parameters in place."""

    def __init__(self, params: Params, kind: str = OPTIMIZER) -> None:
        if kind not in OPTIMIZERS:
            raise ValueError(f"OPTIMIZER is {kind!r}; choose one of {sorted(OPTIMIZERS)}")
        self.direction = OPTIMIZERS[kind]
        self.moments = {name: (np.zeros_like(value), np.zeros_like(value)) for name, value in params.items()}
        self.steps = 0

    def step(self, params: Params, grads: Params, learning_rate: float) -> None:
        self.steps += 1
        shrink = clip_factor(grads)
        for name, value in params.items():
            move = self.direction(grads[name] * shrink, *self.moments[name], self.steps)
            if value.ndim == 2 and name != "embed":
                value *= 1 - learning_rate * WEIGHT_DECAY
            value -= learning_rate * move


def clip_factor(grads: Params) -> float:
    """Factor that limits the global norm of the gradients to GRAD_CLIP."""
    norm = math.sqrt(sum(float(np.vdot(grad, grad)) for grad in grads.values()))
    return GRAD_CLIP / norm if norm > GRAD_CLIP > 0 else 1.0


def learning_rate_at(progress: float) -> float:
    """Linear up, flat, linear down; `progress` is the share of the budget used, 0 to 1."""
    if progress < WARMUP:
        return LEARNING_RATE * progress / WARMUP
    if progress > 1 - WARMDOWN:
        return LEARNING_RATE * (FINAL_LR + (1 - FINAL_LR) * (1 - progress) / WARMDOWN)
    return LEARNING_RATE


# ---- The run -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainedModel:
    params: Params
    steps: int
    seconds: float  # of CPU


def train(model: Model, rng: np.random.Generator) -> TrainedModel:
    """Step until the budget is used up. The learning rate follows the budget, not a step count."""
    params = init_params(model, rng)
    optimizer = Optimizer(params)
    smooth, reported = Smooth(), 0
    started = cpu_seconds()
    while (progress := (cpu_seconds() - started) / TIME_BUDGET) < 1:
        loss, grads = loss_and_grads(model, params, *get_batch(rng, BATCH_SIZE, model.context))
        check_loss(loss, optimizer.steps)
        smooth.add(loss)
        optimizer.step(params, grads, learning_rate_at(progress))
        if int(progress * REPORTS) > reported:
            reported = int(progress * REPORTS)
            print_step(optimizer.steps, progress, smooth.value)
            report(smooth.value / math.log(2), progress)  # bits per byte, the unit of val_bpb
    return TrainedModel(params, optimizer.steps, cpu_seconds() - started)


class Smooth:
    """A running mean of the noisy batch losses, unbiased from the first value on."""

    def __init__(self, memory: float = 0.98) -> None:
        self.memory, self.total, self.weight = memory, 0.0, 0.0

    def add(self, value: float) -> None:
        self.total = self.memory * self.total + (1 - self.memory) * value
        self.weight = self.memory * self.weight + (1 - self.memory)

    @property
    def value(self) -> float:
        return self.total / self.weight


def check_loss(loss: float, step: int) -> None:
    """End a diverged run with status 1 at once instead of spending the rest of its budget."""
    if not loss < HOPELESS_LOSS:  # nan is not less than anything
        sys.exit(
            f"\ntraining diverged: loss is {loss} at step {step}; try a LEARNING_RATE below {LEARNING_RATE!r}"
        )


def print_step(step: int, progress: float, loss: float) -> None:
    remaining = TIME_BUDGET * (1 - progress)
    print(
        f"\rstep {step:05d} ({progress:.1%}) | loss: {loss:.4f} | remaining: {remaining:.1f}s ",
        end="",
        flush=True,
    )


def print_summary(model: Model, trained: TrainedModel, val_bpb: float, total_seconds: float) -> None:
    """The block a worker parses: everything after the last line of three dashes."""
    print("\n---")
    print(f"val_bpb:          {val_bpb:.6f}")
    print(f"training_seconds: {trained.seconds:.1f}")
    print(f"total_seconds:    {total_seconds:.1f}")
    print(f"peak_vram_mb:     {peak_memory_mb():.1f}")
    print("mfu_percent:      0.00")  # a CPU slot has no advertised peak to compare with
    print(f"total_tokens_M:   {trained.steps * BATCH_SIZE / 1e6:.3f}")
    print(f"num_steps:        {trained.steps}")
    print(f"num_params_M:     {sum(value.size for value in trained.params.values()) / 1e6:.3f}")
    print(f"depth:            {model.depth}")


def peak_memory_mb() -> float:
    """Peak resident memory of the process: what stands in for VRAM on a CPU slot."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10  # macOS counts bytes, Linux kilobytes


def predictor(model: Model, params: Params) -> Callable[[Bytes], Floats]:
    """Log probabilities (n, VOCAB) of the byte after each context (n, MAX_CONTEXT)."""
    return lambda contexts: log_softmax(forward(model, params, contexts[:, -model.context :])[0])


def predict() -> None:
    """Answer the evaluator with the weights that the training has left; it alone computes the score that counts."""
    from nightjar_predict import serve  # a Nightjar worker puts it on the path

    with np.load(WEIGHTS) as weights:
        log_probs = predictor(Model(), dict(weights))
    serve(lambda contexts: log_probs(np.asarray(contexts)))


def main() -> None:
    started = time.perf_counter()
    model = Model()
    load_text("train")  # reading the text is not training: keep it out of the budget
    # Overflow is how divergence begins: check_loss says so once, in words, so numpy need not warn.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        trained = train(model, np.random.default_rng(SEED))
        params = trained.params
        np.savez(WEIGHTS, **params)
        val_bpb = evaluate_bpb(predictor(model, params))
    if not math.isfinite(val_bpb):
        sys.exit(f"\ntraining diverged: val_bpb is {val_bpb}; try a LEARNING_RATE below {LEARNING_RATE!r}")
    print_summary(model, trained, val_bpb, time.perf_counter() - started)


if __name__ == "__main__":
    predict() if sys.argv[1:] == ["--predict"] else main()
