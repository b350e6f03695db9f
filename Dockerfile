# The lab's default node image: Python with torch and numpy, MPI (MPICH) with a backend for torch, tc and ip for network
# faults, and the compiled recorder for this torch. Nothing else of the lab is in it: the agent is copied into the node when
# it starts, so this image changes only when torch, the package in mpi/ or the C++ of the recorder does. A node whose
# recorder does not fit uses the one in Python.
#
#   lab image build                                   # builds this file, with progress
#   docker build -t lab-node:0.1.0 .                  # the same by hand
#
# Build arguments
#   BASE                    an image with Python >= 3.9 and its venv module
#   BUILD_BASE              the same with g++ and Python's headers, where apt cannot fetch them; nothing of it is kept
#   TORCH                   version of torch
#   PIP_INDEX_URL           package index instead of pip's own
#   PIP_EXTRA_INDEX_URL     further index, such as PyTorch's for CPU builds (pip's own brings CUDA: 3 GB more)
#   PIP_TRUSTED_HOST        host of an index without a certificate that pip knows
#
# Air-gapped: wheels of torch, numpy and what they need in ./wheels are installed without any index (docs/air-gapped.md);
# those of mpi4py, mpich and hatchling (which makes the wheel of mpi/) may be missing: the image then goes without MPI.
# Works with the classic builder of engine 20.10 and with BuildKit.

ARG BASE=python:3.11-slim-bookworm
ARG BUILD_BASE=${BASE}

FROM ${BUILD_BASE} AS build
# By this label `lab image build` finds the left-over of this stage, and removes it.
LABEL lab.image.stage=build
ARG TORCH=2.13.0
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PIP_PROGRESS_BAR=off
# A compiler for the recorder. Where none can be had, the image works with the recorder in Python, which is slower.
RUN headers="$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h"; \
    if ! command -v g++ >/dev/null 2>&1 || ! [ -e "$headers" ]; then \
      { apt-get update -qq && apt-get install -y -qq --no-install-recommends g++ \
        && { [ -e "$headers" ] || apt-get install -y -qq --no-install-recommends python3-dev; }; } >/tmp/apt.log 2>&1 \
      || { tail -n 5 /tmp/apt.log; echo "warning: no g++ with Python's headers here"; }; \
    fi
COPY wheels/ /wheels/
# The last line drops the C++ test programs and the protobuf compiler that torch's wheel carries: 130 MB.
RUN python3 -m venv /opt/venv \
 && if ls /wheels/*.whl >/dev/null 2>&1; then set -- --no-index --find-links /wheels; else set --; fi \
 && /opt/venv/bin/pip install "$@" "torch==${TORCH}" numpy \
 && /opt/venv/bin/python3 -c 'import numpy, torch; print("torch", torch.__version__, "numpy", numpy.__version__)' \
 && cd "$(/opt/venv/bin/python3 -c 'import torch; print(torch.__path__[0])')" && rm -rf test bin/*test* bin/*Test bin/protoc*
# MPI, and the backend of torch for it. What goes with programs in C (compiler, headers, another ABI) is dropped: 13 MB.
COPY mpi/ /build/mpi/
RUN if ls /wheels/*.whl >/dev/null 2>&1; then set -- --no-index --find-links /wheels; else set --; fi \
 && { /opt/venv/bin/pip install "$@" mpi4py mpich /build/mpi \
      && /opt/venv/bin/python3 -c 'import torch.distributed as d, torch_mpi.library as l; print(l.MPI.Get_library_version())' \
      || echo "warning: this image goes without MPI: mpi4py, mpich or hatchling could not be had"; } \
 && rm -rf /opt/venv/lib/libmpi_abi.so* /opt/venv/include/mpi* /opt/venv/bin/mpicc* /opt/venv/bin/mpicxx* /opt/venv/bin/mpic++*
COPY lab/node/recorder/ /build/recorder/
RUN mkdir -p /opt/lab-recorder && cd /build \
 && { /opt/venv/bin/python3 recorder/build.py /opt/lab-recorder \
      || echo "warning: this image goes without the compiled recorder; the one in Python takes its place"; }

FROM ${BASE}
ARG TORCH=2.13.0
LABEL org.opencontainers.image.title="lab-node" \
      org.opencontainers.image.description="A node of the distributed-PyTorch laboratory: Python, torch, numpy, MPI, tc and ip" \
      org.opencontainers.image.licenses="MIT" \
      lab.image.torch="${TORCH}"
# tc and ip shape the network of a node. Without them everything but network faults works, so a base whose package
# manager cannot be reached is no reason to fail. Slim Python images come without byte code: compiling the standard
# library once here saves that time in every node that starts.
RUN if ! command -v tc >/dev/null 2>&1 || ! command -v ip >/dev/null 2>&1; then \
      { apt-get update -qq && apt-get install -y -qq --no-install-recommends iproute2; } >/tmp/apt.log 2>&1 \
      || { tail -n 5 /tmp/apt.log; echo "warning: no tc and ip in this image: network faults will not work"; }; \
      rm -rf /tmp/apt.log /var/lib/apt/lists/*; \
    fi; \
    python3 -m compileall -q -j 0 -x '/(test|tests|lib2to3|idlelib|site-packages|dist-packages)/' \
      "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" >/dev/null 2>&1 || true
COPY --from=build /opt/venv /opt/venv
COPY --from=build /opt/lab-recorder /opt/lab-recorder
ENV PATH=/opt/venv/bin:$PATH
CMD ["python3"]
