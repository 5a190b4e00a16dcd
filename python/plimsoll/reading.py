"""What a script uses of TensorFlow, read from its text before it runs."""

import ast
import pathlib

# Packages that load TensorFlow, or another framework, themselves.
_LOADERS = {"tensorflow_datasets", "tensorflow_hub", "tensorflow_text", "tensorflow_probability", "tf_keras", "keras_hub", "keras_nlp", "keras_cv",
            "tf2onnx", "jax", "torch", "flax"}


class Use:
    """`names`: "random.set_seed" for tf.random.set_seed, with its line. `reasons`: what cannot be read from the text."""

    def __init__(self):
        self.names = {}
        self.reasons = []

    def name(self, path, place):
        self.names.setdefault(path, place)


def read(script):
    """The Use of a script and of the modules beside it that it imports."""
    use, seen, waiting = Use(), set(), [pathlib.Path(script)]
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        try:
            tree = ast.parse(path.read_text(), str(path))
        except (OSError, SyntaxError, ValueError) as error:
            use.reasons.append(f"{path.name} cannot be read: {error}")
            continue
        waiting += _Reader(use, path).read(tree)
    return use


class _Reader:
    def __init__(self, use, path):
        self.use, self.path = use, path
        self.bound = {}  # a name of the script -> what it is, below tensorflow: "" is tensorflow itself
        self.local = []

    def read(self, tree):
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._module(alias.name, alias.asname, node)
            elif isinstance(node, ast.ImportFrom):
                self._members(node)
        self._uses(tree)
        return self.local

    def _place(self, node):
        return f"{self.path.name}:{node.lineno}"

    def _module(self, name, alias, node):
        first, _, rest = name.partition(".")
        if first == "tensorflow":
            if rest:
                self.use.name(rest, self._place(node))
            self.bound[alias or first] = rest if alias else ""
        self._other(first, node)

    def _members(self, node):
        first, _, rest = (node.module or "").partition(".")
        if first == "tensorflow" and not node.level:
            for alias in node.names:
                path = f"{rest}.{alias.name}" if rest else alias.name
                self.use.name(path, self._place(node))
                self.bound[alias.asname or alias.name] = path
        elif node.level:
            self.local += [each for each in [self.path.parent / f"{(node.module or '').replace('.', '/')}.py"] if each.is_file()]
        else:
            self._other(first, node)

    def _other(self, first, node):
        if first in _LOADERS:
            self.use.reasons.append(f"it imports {first} ({self._place(node)})")
        beside = self.path.parent / f"{first}.py"
        if beside.is_file():
            self.local.append(beside)

    def _uses(self, tree):
        inner = set()  # nodes that are the left part of a longer chain
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and id(node) not in inner:
                chain, base = [], node
                while isinstance(base, ast.Attribute):
                    inner.add(id(base))
                    chain.append(base.attr)
                    base = base.value
                inner.add(id(base))
                if isinstance(base, ast.Name) and base.id in self.bound:
                    self.use.name(".".join([*filter(None, [self.bound[base.id]]), *reversed(chain)]), self._place(node))
            elif isinstance(node, ast.Constant) and node.value == "KERAS_BACKEND":
                self.use.reasons.append(f"it names KERAS_BACKEND ({self._place(node)})")
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and id(node) not in inner and self.bound.get(node.id) == "" and isinstance(node.ctx, ast.Load):
                self.use.reasons.append(f"it uses the module tensorflow as a value ({self._place(node)})")
