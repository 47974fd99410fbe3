# mmrl in one image. `--target cpu` (the default of docker-compose.yml) trains on CPUs, `--target cuda` on NVIDIA GPUs
# with vLLM. The wheels of torch bring CUDA's libraries along; the host needs NVIDIA's driver and container toolkit.
FROM python:3.11-slim AS base
RUN apt-get update \
    && apt-get install -y --no-install-recommends chromium fonts-dejavu-core gcc git libc6-dev make tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 mmrl \
    && install -d -o mmrl -g mmrl /var/lib/mmrl
WORKDIR /opt/mmrl
ENV MMRL_HOME=/var/lib/mmrl PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1

FROM base AS cuda
ARG TORCH="torch==2.14.0 torchvision==0.29.0"
RUN pip install ${TORCH}
COPY pyproject.toml README.md LICENSE ./
COPY mmrl mmrl
COPY console console
COPY configs configs
COPY datasets datasets
RUN pip install --editable ".[vllm,postgres,s3,console]"
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER mmrl
VOLUME /var/lib/mmrl
ENTRYPOINT ["tini", "--"]
CMD ["mmrl", "--help"]

FROM base AS cpu
ARG TORCH="torch==2.14.1 torchvision==0.29.1"
RUN pip install ${TORCH}
COPY pyproject.toml README.md LICENSE ./
COPY mmrl mmrl
COPY console console
COPY configs configs
COPY datasets datasets
RUN pip install --editable ".[postgres,s3,console]"
USER mmrl
VOLUME /var/lib/mmrl
ENTRYPOINT ["tini", "--"]
CMD ["mmrl", "--help"]
