# Both agents in one image: `docker build -t stagewatch .`, then `docker run stagewatch node` or `slurm`.
# Needs the package index and nothing else of the network.  For a private one, or one behind a
# proxy, give --build-arg PIP_INDEX_URL or HTTPS_PROXY.
ARG BASE=docker.io/library/python:3.13.7-slim-bookworm

FROM ${BASE} AS build
ARG PIP_INDEX_URL
ARG PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python -m venv /opt/stagewatch
COPY deploy/requirements.lock deploy/requirements.lock
RUN /opt/stagewatch/bin/pip install --no-cache-dir --require-hashes -r deploy/requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY exporters exporters
COPY alerts alerts
COPY dashboards dashboards
RUN /opt/stagewatch/bin/pip install --no-cache-dir --no-deps . \
    && /opt/stagewatch/bin/python -m pip uninstall --yes --quiet pip

FROM ${BASE}
# The Slurm agent runs squeue and its like: name Debian's packages of them (slurm-client), or mount
# the cluster's own.  Off by default, as it needs Debian's archive too.
ARG APT_PACKAGES=""
RUN if [ "${APT_PACKAGES}" ]; then \
        apt-get update && apt-get install --yes --no-install-recommends ${APT_PACKAGES} \
        && rm -rf /var/lib/apt/lists/*; \
    fi
# The number is fixed, so that what is on volumes and on the node keeps its owner.
RUN groupadd --system --gid 9947 stagewatch \
    && useradd --system --uid 9947 --gid 9947 --home-dir /var/lib/stagewatch --create-home \
        --shell /usr/sbin/nologin stagewatch
COPY --from=build /opt/stagewatch /opt/stagewatch
COPY deploy/docker/entrypoint.sh /usr/local/bin/stagewatch-entrypoint
ENV PATH=/opt/stagewatch/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER stagewatch
VOLUME /var/lib/stagewatch
EXPOSE 9947 9948
ENTRYPOINT ["/usr/local/bin/stagewatch-entrypoint"]
CMD ["node"]
