# A replica's image for GPUs, from the wheel: AWS's PyTorch image with CUDA, NCCL and EFA, and Muster. After
# `make release`, from the repository's root:
#   docker build --platform linux/amd64 -f docker/cuda.Dockerfile -t $REGISTRY/muster-cuda:0.1.0 build/release/0.1.0
# Your code comes into an image FROM this one, or with `source_dir`. AWS keeps its image in other accounts in GovCloud, in
# China and in opt-in regions: --build-arg STOCK=REGISTRY.
ARG STOCK=763104351884.dkr.ecr.us-east-1.amazonaws.com
FROM ${STOCK}/pytorch-training:2.7.1-gpu-py312-cu128-ubuntu22.04-sagemaker
COPY muster_train-*.whl /tmp/muster/
# Without what the command and the SDK need: no replica imports it.
RUN pip install --no-cache-dir --no-deps /tmp/muster/muster_train-*.whl
# Ranges, no pins: the image's numpy belongs to its PyTorch, and stays where it is within them.
RUN pip install --no-cache-dir \
    --requirement "$(python -c 'import muster; print(muster.__path__[0])')/replica/requirements.txt"
RUN rm -r /tmp/muster
WORKDIR /opt/ml/code
