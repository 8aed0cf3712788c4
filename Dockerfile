# An image with the framework and all it can use, for experiments and for images of operators:
#
#   docker build -t kopf .
#   docker run --rm --user "$(id -u)" -v ./handlers.py:/app/main.py \
#       -v ~/.kube/config:/kubeconfig:ro -e KUBECONFIG=/kubeconfig kopf
#
# An image of your own operator is this one with your code:
#
#   FROM kopf
#   COPY main.py requirements.txt /app/
#   USER root
#   RUN pip install -r /app/requirements.txt
#   USER 65532:65532
#
# Requirements such as "kopf>=1.37" are satisfied by this very package, never by the Kopf of the package index: see PIP_CONSTRAINT.
# All code belongs to root: the operator itself cannot change it. What is installed at the start goes to /tmp.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY kopf ./kopf
RUN python -m venv /opt/kopf \
    && /opt/kopf/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /opt/kopf/wheels . \
    && echo "--find-links /opt/kopf/wheels" > /opt/kopf/constraints.txt \
    && echo "kopf==$(ls /opt/kopf/wheels | cut -d- -f2)" >> /opt/kopf/constraints.txt \
    && /opt/kopf/bin/pip install --no-cache-dir '.[full-auth,speed,dev]'

FROM python:${PYTHON}-slim
RUN useradd --uid 65532 --user-group --home-dir /tmp --no-create-home operator
COPY --from=build /opt/kopf /opt/kopf
COPY --chmod=755 docker/entrypoint.sh /usr/local/bin/kopf-entrypoint
ENV PATH=/opt/kopf/bin:$PATH PIP_CONSTRAINT=/opt/kopf/constraints.txt HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
USER 65532:65532
ENTRYPOINT ["kopf-entrypoint"]
