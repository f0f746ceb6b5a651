# The light install: speaks on a CPU, without PyTorch, as a user without privileges.
#   docker build -t marstts .
#   docker run --rm -v "$PWD:/data" marstts speak "Good morning." --output hello.wav
# Files are written to /data, the working directory; mount a folder that user 1000 may write, or add --user "$(id -u)".
# Nothing else is written but /tmp, so that `--read-only --tmpfs /tmp` may be added.
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src src
ARG EXTRAS=""
RUN python -m venv /opt/marstts && /opt/marstts/bin/python -m pip install --no-cache-dir --constraint constraints.txt ".${EXTRAS}"

FROM python:3.12-slim
COPY --from=build /opt/marstts /opt/marstts
RUN useradd --uid 1000 --create-home speaker && mkdir /data && chown speaker /data
ENV PATH=/opt/marstts/bin:$PATH PYTHONDONTWRITEBYTECODE=1 MARSTTS_CACHE=/tmp/marstts
USER speaker
WORKDIR /data
# of `marstts serve`, and of --wyoming-port
EXPOSE 8000 10200
HEALTHCHECK --start-period=60s CMD ["/opt/marstts/bin/python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/health')"]
ENTRYPOINT ["marstts"]
CMD ["--help"]
