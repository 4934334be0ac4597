# One file for every image of Kinema:
#
#   docker build --build-arg SERVICE=observer -t kinema-observer .
#
# SERVICE is observer, predictor, optimizer, decider or rescheduler; `admin` for the commands that prepare and operate
# (setup, rbac, doctor, status, approve, …); `cli` for every command, the simulated cluster and a broker; `nats` for the
# broker alone. Each holds what it needs and nothing else.
#
# Any Debian with Python 3.11 or newer and its venv serves as BASE, also one with a company's certificates in it. The
# default is pinned by the digest of its index, so that builds repeat; `make pin-base` takes the newest.
ARG BASE=python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

FROM ${BASE} AS build
ARG UV_VERSION=0.13.9
RUN python3 -m venv /uv && /uv/bin/pip install --no-cache-dir --disable-pip-version-check --quiet uv==${UV_VERSION}
# Compiled modules carry a hash of their source instead of its time, so that the same source gives the same layer.
ENV UV_PROJECT_ENVIRONMENT=/opt/kinema UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never UV_NO_PROGRESS=1 \
    UV_PREVIEW_FEATURES=sbom-export SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    PYC_INVALIDATION_MODE=UNCHECKED_HASH PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1
WORKDIR /src
COPY pyproject.toml uv.lock ./
COPY core/pyproject.toml core/
COPY kubernetes/pyproject.toml kubernetes/
COPY sim/pyproject.toml sim/
COPY cli/pyproject.toml cli/
COPY services/observer/pyproject.toml services/observer/
COPY services/predictor/pyproject.toml services/predictor/
COPY services/optimizer/pyproject.toml services/optimizer/
COPY services/decider/pyproject.toml services/decider/
COPY services/rescheduler/pyproject.toml services/rescheduler/
ARG SERVICE
RUN case "${SERVICE}" in \
      observer|predictor|optimizer|decider|rescheduler) echo "--package kinema-${SERVICE}" ;; \
      admin|nats) echo "--package kinema-cli --only-group ${SERVICE}" ;; \
      cli) echo "--package kinema-cli" ;; \
      *) echo "SERVICE is '${SERVICE}': use observer, predictor, optimizer, decider, rescheduler, admin, cli or nats" >&2; exit 1 ;; \
    esac > /selection
RUN --mount=type=cache,target=/root/.cache/uv \
    /uv/bin/uv sync --locked --no-dev --no-install-workspace --compile-bytecode $(cat /selection)
COPY . .
ARG SOURCE_DATE_EPOCH=1767225600
RUN --mount=type=cache,target=/root/.cache/uv \
    /uv/bin/uv sync --locked --no-dev --no-editable $(cat /selection) \
    && if [ "${SERVICE}" = admin ]; then /uv/bin/uv pip install --python /opt/kinema --no-deps ./cli; fi \
    && find /opt/kinema/lib -maxdepth 3 -name 'kinema_*' \
       -exec /opt/kinema/bin/python -m compileall -q --invalidation-mode unchecked-hash {} + \
    && /uv/bin/uv export --locked --no-dev --quiet --format cyclonedx1.5 $(cat /selection) \
       | sed -E '/"(serialNumber|timestamp)":/d' > /opt/kinema/sbom.cdx.json
# The kernels are compiled for any processor of the architecture: an image runs on other machines than this one. They are
# kept beside the images: two have them, and most changes leave them as they are.
ENV NUMBA_CPU_NAME=generic NUMBA_CPU_FEATURES=""
RUN --mount=type=cache,target=/root/.cache/kernels,sharing=locked \
    if [ -n "$(find /opt/kinema/lib -maxdepth 3 -name kinema_optimizer)" ]; then \
      NUMBA_CACHE_DIR=/root/.cache/kernels /opt/kinema/bin/python -m kinema_optimizer.search.kernels; fi
# No tests, and nothing that differs from build to build: uv notes the time, a copied folder has that of its source.
RUN find /opt/kinema -depth -type d \( -name tests -o -name test \) -path '*/site-packages/*' -exec rm -rf {} + \
    && find /opt/kinema -name uv_cache.json -delete \
    && find /opt/kinema -name RECORD -exec sed -i '/uv_cache.json/d' {} + \
    && case "${SERVICE}" in \
         admin|cli) ln -s kinema /opt/kinema/bin/run ;; \
         nats) ln -s nats-server /opt/kinema/bin/run ;; \
         *) ln -s "kinema-${SERVICE}" /opt/kinema/bin/run ;; \
       esac \
    && chmod -R a+rX /opt/kinema \
    && mkdir -p /image/opt && mv /opt/kinema /image/opt/ \
    && find /image -exec touch --no-dereference --date="@${SOURCE_DATE_EPOCH}" {} +

FROM ${BASE}
ARG SERVICE
ARG VERSION=0.1.0
ARG REVISION=""
LABEL org.opencontainers.image.title="kinema-${SERVICE}" \
      org.opencontainers.image.description="Kinema's ${SERVICE}: makes Kubernetes clusters as cheap as they can safely be" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
# One thread per process: OpenMP fits take up to a hundred times as long when the count is left open. Probes answer on
# every address, as a kubelet asks from outside. HOME is where a writable volume may be.
ENV PATH=/opt/kinema/bin:${PATH} HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_CPU_NAME=generic NUMBA_CPU_FEATURES="" \
    KINEMA__RUNTIME__HEALTH_HOST=0.0.0.0
COPY --from=build /image/ /
USER 65532:65532
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/kinema/bin/run"]
