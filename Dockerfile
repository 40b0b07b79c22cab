# The agents and the judge.  `docker build -t stagewatch .` makes the image of the node agent and the
# judge, and needs the package index and nothing else of the network: for a private one, or one behind
# a proxy, give --build-arg PIP_INDEX_URL or HTTPS_PROXY.  `docker build --target slurm -t
# stagewatch-slurm .` makes the Slurm agent's, which has Slurm's commands of Debian's archive.
ARG BASE=docker.io/library/python:3.13.7-slim-bookworm@sha256:adafcc17694d715c905b4c7bebd96907a1fd5cf183395f0ebc4d3428bd22d92d

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

FROM ${BASE} AS agent
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
EXPOSE 9947 9948 9949
ENTRYPOINT ["/usr/local/bin/stagewatch-entrypoint"]
CMD ["node"]

FROM agent AS slurm
# Commands must not be newer than slurmctld, nor older than the releases that it still answers.
ARG APT_PACKAGES=slurm-client
USER root
# munge's package makes a key, which would be the same wherever the image runs.  Slurm's commands fail
# where the SlurmUser of slurm.conf is no user; one of another name comes with the cluster's /etc/passwd.
RUN apt-get update && apt-get install --yes --no-install-recommends ${APT_PACKAGES} \
    && rm -rf /var/lib/apt/lists/* /etc/munge/munge.key \
    && { id slurm || useradd --system --shell /usr/sbin/nologin slurm; }
USER stagewatch
CMD ["slurm"]

FROM agent
