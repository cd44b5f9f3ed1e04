# DuckDB on the memory of the servers' parts: reads a question a line, answers with how long it took and whether the answer is the same.
import json, math, os, sys, time

answers = os.fdopen(os.dup(1), 'w')  # DuckDB draws bars of progress on standard output
os.dup2(2, 1)

def say(**w):
    answers.write(json.dumps(w) + '\n')
    answers.flush()

def same(a, b):
    if isinstance(a, float) or isinstance(b, float):
        return a is not None and b is not None and math.isclose(float(a), float(b), rel_tol=1e-9, abs_tol=1e-9)
    return a == b

try:
    import duckdb, pyarrow as pa
    pa.set_cpu_count(1)
    maps = []
    def table(parts):
        tables = []
        for p in parts:
            maps.append(pa.memory_map('/proc/%d/fd/%d' % (p['PID'], p['FD'])))
            tables.append(pa.ipc.open_file(maps[-1].read_buffer(p['Size'])).read_all())
        return pa.concat_tables(tables)
    first = json.loads(sys.stdin.readline())
    t, few = table(first['Parts']), table(first['Few'])
    con = duckdb.connect()
    con.execute('set threads = 1')
    con.execute('set enable_progress_bar = false')
    con.register('t', t)
    con.register('few', few)
    say(Version=duckdb.__version__)
except Exception as e:
    say(Error='%s: %s' % (type(e).__name__, e))
    sys.exit(1)
for line in sys.stdin:
    w = json.loads(line)
    try:
        start = time.perf_counter_ns()
        want = con.execute(w['SQL']).fetchall()
        took = time.perf_counter_ns() - start
        got = [list(r.values()) for r in w['Rows']]
        say(Ns=took, Equal=len(got) == len(want) and all(len(g) == len(x) and all(same(a, b) for a, b in zip(g, x)) for g, x in zip(got, want)))
    except Exception as e:
        say(Error='%s: %s' % (type(e).__name__, e))
