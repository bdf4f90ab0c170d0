# Sourced by scripts/bench: what is measured of the store beside etcd, apart from plain puts.

# load NAME ARGUMENT...: one run of the load generator against $port; sets rate, p50, p99, p999 (ms) and cpu (us of the
# server in all)
load() {
    local before after name=$1
    shift
    before=$(ticks "$pid")
    "$peers/benchmark" --endpoints="127.0.0.1:$port" "$@" >"$work/out" 2>"$work/errors" || true
    after=$(ticks "$pid")
    if ! grep -q 'Requests/sec' "$work/out" || grep -q 'Error distribution' "$work/out"; then
        echo "scripts/bench: $server did not serve '$name':" >&2
        cat "$work/out" "$work/errors" >&2
        exit 1
    fi
    # The last summary, where there are several.
    read -r rate p50 p99 p999 < <(awk '/Requests\/sec/ { r = $2 } $1 == "50%" { a = $3 * 1000 } $1 == "99%" { b = $3 * 1000 }
        $1 == "99.9%" { c = $3 * 1000 } END { print r, a, b, c }' "$work/out")
    cpu=$((after - before))
}

# note WORK FIGURE VALUE
note() { echo "$server $1 $2 $3" >>"$results"; }
figure() { column "$results" "$1 $2 $3"; }
ratio() { awk -v a="$(figure store "$1" "$2")" -v b="$(figure etcd "$1" "$2")" 'BEGIN { printf "%.2f", (b > 0 ? a / b : 0) }'; }

# both COMMAND: on a fresh etcd and a fresh store in turn, round by round
both() {
    local round
    for round in $(seq "$rounds"); do
        for server in etcd store; do
            "start_$server" "$work/$server" http
            "$1"
            kill "$pid" 2>/dev/null || true
            wait "$pid" || true
            rm -rf "$work/$server" "$work/$server".*
        done
        echo "round $round of $rounds is done; load $(cut -d' ' -f1 /proc/loadavg)" >&2
    done
}

fill() { # OBJECTS BYTES
    load fill --conns=10 --clients=100 put --total="$1" --key-size=64 --val-size="$2" --key-space-size="$1" --sequential-keys
}

# The tool's keys begin with any byte but 0xff; all but the very first lie in here.
all_keys=($'\x01' $'\xff')

list_once() {
    local objects=100000
    fill $objects 2048
    # Once before, so that neither side reads it from the disk for the first time.
    load warm range "${all_keys[@]}" --total=1
    load pages --conns=2 --clients=2 range "${all_keys[@]}" --limit=500 --total=2000
    note pages rate "$(awk -v r="$rate" 'BEGIN { print r * 500 }')"
    note pages cpu "$(awk -v c="$cpu" 'BEGIN { print c / 2000 / 500 }')"
    load whole range "${all_keys[@]}" --total=10
    note whole rate "$(awk -v r="$rate" -v n=$objects 'BEGIN { print r * n }')"
    note whole cpu "$(awk -v c="$cpu" -v n=$objects 'BEGIN { print c / 10 / n }')"
}

bench_list() {
    results=$work/results
    both list_once
    echo "| 100,000 objects of 2 KiB | etcd: objects/s | server CPU per object | store: objects/s | server CPU per object | ratio of rates (wanted: 1.3) | ratio of CPU (wanted: 0.5) |"
    echo "| --- | --- | --- | --- | --- | --- | --- |"
    local work_name
    for work_name in pages whole; do
        printf '| %s | %.0f | %.2f us | %.0f | %.2f us | %s | %s |\n' \
            "$([ $work_name = pages ] && echo "first page of 500, 2 clients" || echo "as one answer")" \
            "$(figure etcd $work_name rate)" "$(figure etcd $work_name cpu)" "$(figure store $work_name rate)" \
            "$(figure store $work_name cpu)" "$(ratio $work_name rate)" "$(ratio $work_name cpu)"
    done
}

watch_once() {
    # The events of 50 streams on one key.
    load matching --conns=10 --clients=10 watch-latency --streams=50 --watchers-per-stream=1 --put-rate=500 --put-total=5000
    note matching p99 "$p99"
    note matching cpu "$(awk -v c="$cpu" 'BEGIN { print c / 5000 }')"
    # 10,000 watches, each on a key of its own, under writes; beside them a few whose latency is taken.
    local total=$((5000 * 20)) before after load_pid
    before=$(ticks "$pid")
    "$peers/benchmark" --endpoints="127.0.0.1:$port" --conns=20 --clients=100 watch --streams=100 --watch-per-stream=100 \
        --watched-key-total=10000 --key-space-size=10000 --sequential-keys --put-rate=5000 --put-total=$total >"$work/many" 2>&1 &
    load_pid=$!
    sleep 5
    load many watch-latency --streams=10 --watchers-per-stream=1 --put-rate=100 --put-total=1000
    note many p99 "$p99"
    wait $load_pid
    after=$(ticks "$pid")
    note many cpu "$(((after - before) / total))"
}

bench_watch() {
    results=$work/results
    both watch_once
    echo "| watches | etcd: event p99 | server CPU per write | store: event p99 | server CPU per write | ratio of p99 (wanted: 0.6) | ratio of CPU (wanted: 0.6) |"
    echo "| --- | --- | --- | --- | --- | --- | --- |"
    local work_name
    for work_name in matching many; do
        printf '| %s | %.1f ms | %.0f us | %.1f ms | %.0f us | %s | %s |\n' \
            "$([ $work_name = matching ] && echo "50 that all match, one writer" || echo "10,000 on a key of their own, 5,000 writes/s")" \
            "$(figure etcd $work_name p99)" "$(figure etcd $work_name cpu)" "$(figure store $work_name p99)" \
            "$(figure store $work_name cpu)" "$(ratio $work_name p99)" "$(ratio $work_name cpu)"
    done
}

# written PID: bytes the process had written to the disk
written() { awk '$1 == "write_bytes:" { print $2 }' "/proc/$1/io"; }

fill_once() {
    local put=$((keys * (64 + 1024))) before begun
    before=$(written "$pid")
    fill "$keys" 1024
    note fill rate "$rate"
    sleep 5
    note fill written "$(awk -v b=$(($(written "$pid") - before)) -v p=$put 'BEGIN { print b / p }')"
    note fill anonymous "$(memory "$pid" RssAnon)"
    note fill disk "$(du -s --block-size=1 "$work/$server" | awk -v p=$put '{ print $1 / p }')"
    kill -9 "$pid"
    wait "$pid" 2>/dev/null || true
    begun=$(date +%s%N)
    "start_$server" "$work/$server" http
    until "$peers/etcdctl" --endpoints="http://127.0.0.1:$port" --command-timeout=20s get ready >/dev/null 2>&1; do :; done
    note fill ready $((($(date +%s%N) - begun) / 1000000))
}

bench_fill() {
    results=$work/results
    both fill_once
    echo "| $keys objects of 1 KiB, keys of 64 bytes | etcd | store | ratio | wanted |"
    echo "| --- | --- | --- | --- | --- |"
    row() { # FIGURE FORMAT TEXT WANTED
        printf "| %s | $2 | $2 | %s | %s |\n" "$3" "$(figure etcd fill "$1")" "$(figure store fill "$1")" "$(ratio fill "$1")" "$4"
    }
    row rate '%.0f/s' "put, 100 clients" ""
    row anonymous '%.0f MiB' "anonymous memory after it" "at most 0.5"
    row disk '%.2f' "space taken on the disk per byte of keys and values" "the store's at most 1.6"
    row written '%.2f' "bytes written per byte put" ""
    row ready '%.0f ms' "from kill -9 until a read is answered" "at most 0.5"
}

compaction_once() {
    local put=(--conns=10 --clients=20 put --rate=2000 --total=40000 --key-size=64 --val-size=1024 --key-space-size=20000 --sequential-keys)
    load plain "${put[@]}"
    note plain p999 "$p999"
    load compacting "${put[@]}" --compact-interval=3s --compact-index-delta=3000
    note compacting p999 "$p999"
}

bench_compaction() {
    results=$work/results
    both compaction_once
    echo "| put at 2,000/s, 20 clients | etcd: p99.9 | store: p99.9 |"
    echo "| --- | --- | --- |"
    local work_name
    for work_name in plain compacting; do
        printf '| %s | %.1f ms | %.1f ms |\n' \
            "$([ $work_name = plain ] && echo "alone" || echo "while all but the last 3,000 revisions are compacted every 3 s")" \
            "$(figure etcd $work_name p999)" "$(figure store $work_name p999)"
    done
    echo
    for server in etcd store; do
        awk -v a="$(figure $server compacting p999)" -v b="$(figure $server plain p999)" -v s=$server \
            'BEGIN { printf "%s: %.2f times that without (wanted of the store: at most 1.5).\n", s, a / b }'
    done
}
