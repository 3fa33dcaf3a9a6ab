# syntax=docker/dockerfile:1
# One image, all programs: muster-agent (also the reader and the warmer), muster-admitter, muster.
# Which of them runs, as whom and with what is the manifests' business (daemonset/); the image itself is unprivileged.
#
#   docker build -t muster:dev .
#
# The NVIDIA library is not in the image: the reader finds the node's own, so that it always fits the node's driver.

ARG PYTHON_IMAGE=python:3.13-slim-trixie

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /opt/muster
COPY requirements/runtime.txt requirements/build.txt requirements/
# Wheels only: nothing is compiled, so the stage needs no compiler and a missing wheel is an error that says so.
RUN /opt/muster/bin/pip install --require-hashes --only-binary :all: -r requirements/runtime.txt
# What builds our own wheel stays in this stage.
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --require-hashes --only-binary :all: -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY muster/ muster/
COPY agent/ agent/
COPY admitter/ admitter/
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
    && /opt/muster/bin/pip install --no-deps dist/*.whl \
    && /opt/muster/bin/pip uninstall --yes pip

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="muster" \
      org.opencontainers.image.description="Roll-call for GPUs on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/muster /opt/muster
ENV PATH=/opt/muster/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT []
CMD ["muster", "--help"]
