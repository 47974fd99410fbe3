# mmrl with the training backend on the CPU. For GPUs build with
#   --build-arg TORCH="torch==2.14.0 torchvision==0.29.0" --build-arg EXTRAS="[vllm]"
FROM python:3.11-slim
ARG TORCH="torch==2.14.1 torchvision==0.29.1"
ARG EXTRAS=""
RUN apt-get update \
    && apt-get install -y --no-install-recommends git make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/mmrl
RUN pip install --no-cache-dir ${TORCH}
COPY pyproject.toml README.md LICENSE ./
COPY mmrl mmrl
COPY console console
COPY configs configs
COPY datasets datasets
RUN pip install --no-cache-dir --editable ".${EXTRAS}"
ENV MMRL_HOME=/var/lib/mmrl
VOLUME /var/lib/mmrl
ENTRYPOINT ["mmrl"]
CMD ["--help"]
