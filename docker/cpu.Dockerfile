# A replica's image for CPUs, from the wheel. After `make release`, from the repository's root:
#   docker build --platform linux/amd64 -f docker/cpu.Dockerfile -t $REGISTRY/muster-cpu:0.1.0 build/release/0.1.0
# Your code comes into an image FROM this one, or with `source_dir`.
FROM python:3.13-slim
COPY muster_train-*.whl requirements.txt /tmp/muster/
# Without what the command and the SDK need: no replica imports it.
RUN pip install --no-cache-dir --no-deps /tmp/muster/muster_train-*.whl
RUN pip install --no-cache-dir --constraint /tmp/muster/requirements.txt \
    --requirement "$(python -c 'import muster; print(muster.__path__[0])')/replica/requirements.txt"
RUN rm -r /tmp/muster
WORKDIR /opt/ml/code
