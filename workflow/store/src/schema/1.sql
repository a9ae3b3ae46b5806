-- Every row of history carries its plane and namespace. Times are milliseconds since 1970.
CREATE TABLE runs (
  plane TEXT NOT NULL, namespace TEXT NOT NULL, uid TEXT NOT NULL, name TEXT NOT NULL, dag TEXT NOT NULL,
  phase TEXT NOT NULL, reason TEXT NOT NULL, message TEXT NOT NULL, started_by TEXT NOT NULL,
  restart {int} NOT NULL, revision {int} NOT NULL,
  created_at {int} NOT NULL, started_at {int}, ended_at {int},
  total {int} NOT NULL, succeeded {int} NOT NULL, failed {int} NOT NULL, skipped {int} NOT NULL,
  parameters TEXT NOT NULL,
  PRIMARY KEY (plane, uid, created_at)
) {by_month(created_at)};
CREATE INDEX runs_by_time ON runs (plane, created_at, uid);
CREATE INDEX runs_by_namespace ON runs (plane, namespace, created_at, uid);
CREATE INDEX runs_by_dag ON runs (plane, namespace, dag, created_at, uid);
CREATE INDEX runs_by_phase ON runs (plane, phase, created_at, uid);
CREATE INDEX runs_by_namespace_and_phase ON runs (plane, namespace, phase, created_at, uid);
CREATE INDEX runs_by_dag_and_phase ON runs (plane, namespace, dag, phase, created_at, uid);
CREATE INDEX runs_by_name ON runs (plane, namespace, name, created_at, uid);
CREATE INDEX runs_by_age ON runs (created_at);

CREATE TABLE tasks (
  plane TEXT NOT NULL, namespace TEXT NOT NULL, run TEXT NOT NULL, run_created_at {int} NOT NULL,
  task TEXT NOT NULL, restart {int} NOT NULL, attempt {int} NOT NULL,
  phase TEXT NOT NULL, reason TEXT NOT NULL, message TEXT NOT NULL,
  pod TEXT NOT NULL, pod_uid TEXT NOT NULL, node TEXT NOT NULL, exit_code {int},
  queued_at {int}, started_at {int}, ended_at {int},
  PRIMARY KEY (plane, run, task, restart, attempt, run_created_at)
) {by_month(run_created_at)};

CREATE TABLE logs (
  plane TEXT NOT NULL, namespace TEXT NOT NULL, run TEXT NOT NULL, run_created_at {int} NOT NULL,
  task TEXT NOT NULL, restart {int} NOT NULL, attempt {int} NOT NULL, container TEXT NOT NULL,
  pod TEXT NOT NULL, pod_uid TEXT NOT NULL,
  location TEXT NOT NULL, bytes {int} NOT NULL, line_count {int} NOT NULL, complete {int} NOT NULL,
  PRIMARY KEY (plane, run, task, restart, attempt, container, run_created_at)
) {by_month(run_created_at)};
CREATE INDEX logs_by_pod ON logs (plane, pod_uid);

-- An empty namespace or DAG stands for all of them.
CREATE TABLE days (
  plane TEXT NOT NULL, namespace TEXT NOT NULL, dag TEXT NOT NULL, day {int} NOT NULL,
  succeeded {int} NOT NULL, failed {int} NOT NULL, stopped {int} NOT NULL,
  duration_sum {int} NOT NULL, queue_sum {int} NOT NULL,
  PRIMARY KEY (plane, namespace, dag, day)
);
CREATE TABLE day_buckets (
  plane TEXT NOT NULL, namespace TEXT NOT NULL, dag TEXT NOT NULL, day {int} NOT NULL,
  measure TEXT NOT NULL, bucket {int} NOT NULL, runs {int} NOT NULL,
  PRIMARY KEY (plane, namespace, dag, day, measure, bucket)
);

CREATE TABLE members (
  install TEXT NOT NULL, holder TEXT NOT NULL, expires_at {int} NOT NULL,
  PRIMARY KEY (install, holder)
);
CREATE TABLE leases (
  install TEXT NOT NULL, partition_id {int} NOT NULL, holder TEXT NOT NULL, generation {int} NOT NULL, expires_at {int} NOT NULL,
  PRIMARY KEY (install, partition_id)
);

CREATE TABLE accounts (
  name TEXT NOT NULL PRIMARY KEY, password_hash TEXT NOT NULL, role TEXT NOT NULL, created_at {int} NOT NULL
);
CREATE TABLE tokens (
  hash TEXT NOT NULL PRIMARY KEY, account TEXT NOT NULL, created_at {int} NOT NULL, expires_at {int} NOT NULL
);
CREATE INDEX tokens_by_account ON tokens (account);
CREATE INDEX tokens_by_end ON tokens (expires_at);
