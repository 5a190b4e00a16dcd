#!/usr/bin/env python3
"""Times training steps of the peers (PyTorch, JAX) on one GPU and prints one JSON line per case, as step_bench does for Plimsoll.

  bench/gpu/peers.py [--peers eager,compile,autotune,autotune-library,jax] [--works seed64,seed128,resnet50,gpt2,...] [--precisions fp32,bf16,fp16]

A step is forward, backward and a fused Adam update on synthetic data that is already on the device. autotune is torch.compile with
mode="max-autotune"; autotune-library is the same without Triton's products and convolutions, which take more than eight minutes to try
for ResNet-50. ms is the median time per step, after a warm-up, each measured over 10 steps without synchronisation in between.
allocated and reserved are the allocator's peaks; process is what the driver counts for the whole device. Images are channels-last;
fp32 means tf32.
Only the seed models have a JAX case here. The models with a name of torchvision's are torchvision's.
"""
import argparse, gc, json, os, statistics, time

TOGETHER = 10  # steps between two synchronisations

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(os.cpu_count()))
WORKS = {  # name: (kind, batch, size)
    "seed64": ("seed1", 32, 64), "seed128": ("seed2", 128, 128),
    "resnet50": ("resnet50", 256, 224), "gpt2": ("gpt2", 16, 1024), "unet": ("unet", 16, 256),
    "mobilenetv2": ("mobilenet_v2", 192, 224), "mobilenetv3": ("mobilenet_v3_large", 192, 224),
    "efficientnetb0": ("efficientnet_b0", 128, 224), "densenet121": ("densenet121", 96, 224),
    "vgg16": ("vgg16", 64, 224), "convnexttiny": ("convnext_tiny", 128, 224),
    "lstm": ("lstm", 64, 256), "gru": ("gru", 64, 256)}
TOKENS = {"gpt2": 50257, "lstm": 10000, "gru": 10000}  # vocabularies of models whose input is a sequence
CLASSES = {"seed1": 10, "seed2": 10, "unet": 2, "lstm": 10, "gru": 10}  # the others have 1,000


def unet_model(filters=(64, 128, 256, 512, 1024)):
    """The U-Net of make_models.py."""
    import torch, torch.nn as nn

    def level(a, b):
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True),
                             nn.Conv2d(b, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList(level(a, b) for a, b in zip((3,) + filters, filters))
            self.grow = nn.ModuleList(nn.ConvTranspose2d(2 * f, f, 2, stride=2) for f in filters[-2::-1])
            self.up = nn.ModuleList(level(2 * f, f) for f in filters[-2::-1])
            self.head = nn.Conv2d(filters[0], 2, 1)

        def forward(self, x):
            skips = []
            for i, down in enumerate(self.down):
                x = down(x if i == 0 else nn.functional.max_pool2d(x, 2))
                skips.append(x)
            for grow, up, skip in zip(self.grow, self.up, skips[-2::-1]):
                x = up(torch.cat([skip, grow(x)], 1))
            return self.head(x)

    return Net()


def recurrent_model(kind, width=256, units=1024):
    """Two recurrent layers; the output of the last step is classified."""
    import torch.nn as nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(TOKENS[kind], width)
            self.loop = getattr(nn, kind.upper())(width, units, num_layers=2, batch_first=True)
            self.head = nn.Linear(units, CLASSES[kind])

        def forward(self, x):
            return self.head(self.loop(self.tokens(x))[0][:, -1])

    return Net()


def torch_model(kind, size):
    import torch, torch.nn as nn, torch.nn.functional as F
    if kind in ("lstm", "gru"):
        return recurrent_model(kind)
    if kind == "unet":
        return unet_model()
    if kind not in ("seed1", "seed2", "gpt2"):
        import torchvision
        return getattr(torchvision.models, kind)()
    if kind == "gpt2":
        class Block(nn.Module):
            def __init__(self, d, h):
                super().__init__()
                self.h, self.l1, self.l2 = h, nn.LayerNorm(d), nn.LayerNorm(d)
                self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
                self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
            def forward(self, x):
                b, t, d = x.shape
                q, k, v = (y.view(b, t, self.h, -1).transpose(1, 2) for y in self.qkv(self.l1(x)).chunk(3, -1))
                a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
                return x + self.down(F.gelu(self.up(self.l2(x))))
        class GPT(nn.Module):
            def __init__(self, layers=12, d=768, h=12, vocab=50257):
                super().__init__()
                self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(size, d)
                self.blocks = nn.ModuleList(Block(d, h) for _ in range(layers))
                self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)
            def forward(self, i):
                x = self.tok(i) + self.pos(torch.arange(i.shape[1], device=i.device))
                for block in self.blocks:
                    x = block(x)
                return self.head(self.norm(x))
        return GPT()
    two = kind == "seed2"
    side = (size - 2) // 2
    layers = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.MaxPool2d(2)]
    if two:
        layers += [nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)]
        side = (side - 2) // 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear((64 if two else 32) * side * side, 10))


MODES = {"eager": None, "compile": "default", "autotune": "max-autotune", "autotune-library": "max-autotune"}


def run_torch(work, precision, peer, steps):
    import torch, torch.nn.functional as F
    import torch._inductor.config as inductor
    inductor.max_autotune_gemm_backends = inductor.max_autotune_conv_backends = \
        "ATEN" if peer == "autotune-library" else "ATEN,TRITON"
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    kind, batch, size = WORKS[work]
    gc.collect(); torch.cuda.empty_cache(); torch._dynamo.reset()
    start = time.time()
    model = torch_model(kind, size).cuda()
    if kind in TOKENS:
        x = torch.randint(0, TOKENS[kind], (batch, size), device="cuda")
        y = torch.randint(0, CLASSES.get(kind, TOKENS[kind]), (batch, size) if kind == "gpt2" else (batch,), device="cuda")
    else:
        model = model.to(memory_format=torch.channels_last)
        x = torch.rand(batch, 3, size, size, device="cuda").contiguous(memory_format=torch.channels_last)
        rows = (batch, size, size) if kind == "unet" else (batch,)
        y = torch.randint(0, CLASSES.get(kind, 1000), rows, device="cuda")
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
    forward = model if MODES[peer] is None else torch.compile(model, mode=MODES[peer])
    dtype = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16")
    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=dtype or torch.float32, enabled=dtype is not None):
            out = forward(x)
            loss = F.cross_entropy(out.reshape(-1, out.shape[-1]) if kind == "gpt2" else out, y.reshape(-1) if kind == "gpt2" else y)
        scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()
    step(); torch.cuda.synchronize(); first = time.time() - start
    for _ in range(5): step()
    torch.cuda.synchronize(); torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(steps // TOGETHER):
        torch.cuda.synchronize(); begin = time.time()
        for _ in range(TOGETHER): step()
        torch.cuda.synchronize(); times.append((time.time() - begin) * 1e3 / TOGETHER)
    free, total = torch.cuda.mem_get_info()
    mib = 2 ** 20
    return dict(ms=statistics.median(times), first_step_s=first, allocated_mib=torch.cuda.max_memory_allocated() / mib,
                reserved_mib=torch.cuda.max_memory_reserved() / mib, process_mib=(total - free) / mib)


def run_jax(work, precision, steps):
    import jax, jax.numpy as jnp
    from jax import lax
    kind, batch, size = WORKS[work]
    if kind not in ("seed1", "seed2"):
        return None
    dtype = {"fp32": jnp.float32, "bf16": jnp.bfloat16, "fp16": jnp.float16}[precision]
    key, two, side, channels = jax.random.PRNGKey(0), kind == "seed2", (size - 2) // 2, 32
    p = dict(w1=jax.random.normal(key, (3, 3, 3, 32)) * .1, b1=jnp.zeros(32))
    if two:
        side, channels = (side - 2) // 2, 64
        p.update(w2=jax.random.normal(key, (3, 3, 32, 64)) * .05, b2=jnp.zeros(64))
    p.update(w3=jax.random.normal(key, (channels * side * side, 10)) * .01, b3=jnp.zeros(10))
    m, v = jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p)
    x, y = jax.random.uniform(key, (batch, size, size, 3)), jax.random.randint(key, (batch,), 0, 10)
    def block(x, w, b):
        x = lax.conv_general_dilated(x, w.astype(dtype), (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return lax.reduce_window(jax.nn.relu(x + b.astype(dtype)), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    def loss(p, x, y):
        x = block(x.astype(dtype), p["w1"], p["b1"])
        if two: x = block(x, p["w2"], p["b2"])
        logits = (x.reshape(batch, -1) @ p["w3"].astype(dtype) + p["b3"].astype(dtype)).astype(jnp.float32)
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1))
    def step(p, m, v, x, y):
        value, g = jax.value_and_grad(loss)(p, x, y)
        m = jax.tree.map(lambda a, b: .9 * a + .1 * b, m, g)
        v = jax.tree.map(lambda a, b: .999 * a + .001 * b * b, v, g)
        return jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-7), p, m, v), m, v, value
    start = time.time()
    compiled = jax.jit(step, donate_argnums=(0, 1, 2)).lower(p, m, v, x, y).compile()
    p, m, v, value = compiled(p, m, v, x, y); value.block_until_ready(); first = time.time() - start
    times = []
    for i in range(steps // TOGETHER + 1):
        t = time.time()
        for _ in range(TOGETHER): p, m, v, value = compiled(p, m, v, x, y)
        value.block_until_ready()
        if i >= 1: times.append((time.time() - t) * 1e3 / TOGETHER)
    plan = compiled.memory_analysis()
    return dict(ms=statistics.median(times), first_step_s=first, temp_mib=plan.temp_size_in_bytes / 2 ** 20,
                argument_mib=plan.argument_size_in_bytes / 2 ** 20)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--peers", default="eager,compile,jax")
    a.add_argument("--works", default=",".join(WORKS))
    a.add_argument("--precisions", default="fp32,bf16")
    a.add_argument("--steps", type=int, default=50)
    o = a.parse_args()
    for work in o.works.split(","):
        for precision in o.precisions.split(","):
            for peer in o.peers.split(","):
                try:
                    r = run_jax(work, precision, o.steps) if peer == "jax" else run_torch(work, precision, peer, o.steps)
                except Exception as e:  # a failure of a peer is also a result
                    r = dict(error=str(e)[:300])
                if r is not None:
                    r = {k: round(v, 3) if isinstance(v, float) else v for k, v in r.items()}
                    print(json.dumps(dict(work=work, precision=precision, peer=peer, **r)), flush=True)


if __name__ == "__main__":
    main()
