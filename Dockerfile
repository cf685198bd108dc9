# Untested: where this was written, no image could be pulled. tests/test_containers.py checks what can be checked without.
# A project that needs more than numpy: FROM nightjar, then `RUN pip install ...` as root; see docs/install.md.

FROM python:3.13-slim AS wheel
WORKDIR /src
COPY pyproject.toml README.md LICENSE program.md program-traces.md program-training.md program-worker.md ./
COPY functions functions
COPY state state
COPY triggers triggers
COPY workers workers
COPY examples examples
COPY installed installed
COPY skills skills
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /dist .

FROM python:3.13-slim
# the project is mounted, and belongs to another user: git reads it all the same
RUN apt-get update \
 && apt-get install --yes --no-install-recommends git bubblewrap \
 && rm -rf /var/lib/apt/lists/* \
 && git config --system --add safe.directory '*'
COPY requirements.txt /tmp/
RUN pip install --no-cache-dir --require-hashes --requirement /tmp/requirements.txt
COPY --from=wheel /dist /dist
RUN pip install --no-cache-dir --no-deps /dist/*.whl
RUN useradd --create-home nightjar && install --directory --owner=nightjar /data
USER nightjar
WORKDIR /home/nightjar
ENV NIGHTJAR_DATA=/data
ENTRYPOINT ["nightjar"]
CMD ["--help"]
