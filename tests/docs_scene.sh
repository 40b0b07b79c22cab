# Runs the commands of commands.json, into ended.json, in namespaces of their own: beside a node agent,
# a judge, a Prometheus and a job of eight ranks, under the names and on the ports of the pages.
set -eu
ip link set lo up
for directory in /etc/stagewatch /etc/prometheus /var/lib/stagewatch /var/lib/stagewatch-faults /run; do
    mkdir -p $directory
    mount -t tmpfs -o mode=755 tmpfs $directory
done
mount -t tmpfs -o mode=1777 tmpfs /dev/shm # no ranks but our own
mkdir -p /run/stagewatch/ranks /run/stagewatch/faults
chmod 1777 /run/stagewatch/ranks
echo '127.0.0.1 localhost prometheus PROMETHEUS NODE node' > hosts
mount --bind hosts /etc/hosts
touch /etc/stagewatch/node.env
printf '[node]\nlisten = "127.0.0.1:9947"\n[slurm]\nlisten = "127.0.0.1:9948"\n' > /etc/stagewatch/stagewatch.toml
printf 'basic_auth_users: {}\n' > /etc/stagewatch/web.yml
cp -r "$ROOT/alerts" "$ROOT/deploy/alertmanager/." .
ln -s "$ROOT/.venv" .venv
ln -s "$ROOT/tests" tests

cat > job.py <<'END'
import time, stagewatch
stagewatch.init(role="train", job_id="540")
step = 0
while True:
    step += 1
    with stagewatch.stage("train", step=step):
        with stagewatch.call("search"):
            time.sleep(0.1)
        stagewatch.scalar("loss", 0.5)
END
for rank in 0 1 2 3 4 5 6 7; do RANK=$rank WORLD_SIZE=8 python3 job.py & done
cat > prometheus.yml <<'END'
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [ROOT/alerts/*.rules.yaml]
scrape_configs:
  - job_name: stagewatch
    static_configs: [{targets: ["127.0.0.1:9947"], labels: {cluster: lab, node: node}}]
END
sed -i "s#ROOT#$ROOT#" prometheus.yml
stagewatch node --listen :9947 > node.log 2>&1 &
stagewatch judge --listen :9949 --prometheus http://127.0.0.1:9090 > judge.log 2>&1 &
prometheus --config.file=prometheus.yml --storage.tsdb.path=data > prometheus.log 2>&1 &
python3 - <<'END'
import json, subprocess, time, urllib.request

def answer(url):
    try:
        return urllib.request.urlopen(url, timeout=5).read().decode()
    except OSError:
        return ""

query = "http://127.0.0.1:9090/api/v1/query?query="
seen = {
    "http://127.0.0.1:9947/metrics": 'rl_call_oldest_seconds',
    "http://127.0.0.1:9949/metrics": "rl_judge_jobs",
    query + "count(rl_rank_info)": '"8"',
    query + "count(limit:default:value)": '"value"',
}
while missing := [url for url, text in seen.items() if text not in answer(url)]:
    print("waits for", missing, flush=True)
    time.sleep(1)
ended = {}
for command in json.load(open("commands.json")):
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=100)
    ended[command] = done.returncode, done.stdout[-2000:] + done.stderr[-2000:]
json.dump(ended, open("ended.json", "w"))
END
