# DuckDB and Polars reading the same CSV file, a thread each: answers a line with how long it took.
import json, os, sys, time

answers = os.fdopen(os.dup(1), 'w')
os.dup2(2, 1)
os.environ['POLARS_MAX_THREADS'] = '1'

def say(**w):
    answers.write(json.dumps(w) + '\n')
    answers.flush()

for line in sys.stdin:
    w = json.loads(line)
    try:
        if w['Tool'] == 'duckdb':
            import duckdb
            con = duckdb.connect()
            con.execute('set threads = 1')
            con.execute('set enable_progress_bar = false')
            start = time.perf_counter_ns()
            con.execute("create table t as select * from read_csv('%s')" % w['Path'])
            took = time.perf_counter_ns() - start
            rows, version = con.execute('select count(*) from t').fetchone()[0], duckdb.__version__
            con.close()
        else:
            import polars
            start = time.perf_counter_ns()
            t = polars.read_csv(w['Path'], try_parse_dates=True)
            took = time.perf_counter_ns() - start
            rows, version = t.height, polars.__version__
            del t
        say(Ns=took, Rows=rows, Version=version)
    except ImportError as e:
        say(Missing=str(e))
    except Exception as e:
        say(Error='%s: %s' % (type(e).__name__, e))
