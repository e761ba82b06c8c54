-- Tables of the embedded store. "-- name: purpose" opens each piece. What "checksum" covers: queuey/storage/sqlite/checked_rows.py says it where the column has no comment.

-- schema: tables are ordered by arrival, not by queue: so writes spread over a million queues change one small index page each, not one page of bodies (docs/decisions/004)
create table if not exists messages (
    seq          integer primary key,
    partition_key        blob    not null,  -- uuid of the queue's incarnation, then one byte of partition number
    ticks        integer not null,  -- the id, see queuey/ids.py
    tail         integer not null,
    expires      integer not null,  -- ticks
    checksum         integer not null,  -- length and CRC32C, see checksum_of
    content_type blob,              -- UTF-8, as blobs: a damaged text would fail the whole page
    key          blob,
    body         blob    not null,
    headers      blob               -- encoded, see queuey/model/headers.py
);
create index if not exists messages_in_order on messages (partition_key, ticks, tail, expires);
create index if not exists messages_by_expiry on messages (expires);
create table if not exists packs (   -- messages of one partition in one piece, see queuey/storage/sqlite/packs.py; no other message's id lies between its ends
    seq         integer primary key,
    partition_key       blob    not null,
    first_ticks integer not null,   -- ids of its ends
    first_tail  integer not null,
    last_ticks  integer not null,
    last_tail   integer not null,
    messages    integer not null,   -- how many
    earliest    integer not null,   -- of their expiries, ticks
    latest      integer not null,
    bytes       integer not null,   -- of their bodies
    head_crc    integer not null,
    rest_crc    integer not null,
    head        blob    not null,
    rest        blob    not null
);
create index if not exists packs_in_order
    on packs (partition_key, last_ticks, last_tail, first_ticks, first_tail, messages, earliest, latest, bytes);
create index if not exists packs_by_expiry on packs (latest, partition_key, earliest, messages, bytes);
create index if not exists packs_expiring   -- the others expire within a millisecond; an entry for each pack would cost a seventh of storing it (docs/decisions/023)
    on packs (partition_key, earliest, latest, messages, bytes) where latest - earliest > 10000;
create table if not exists cached_runs (    -- copies of runs of packs, in a folder beside this file, see queuey/storage/sqlite/read_cache.py
    first_pack  integer primary key,
    partition_key       blob    not null,
    first_ticks integer not null,
    first_tail  integer not null,
    last_ticks  integer not null,
    last_tail   integer not null,
    messages    integer not null,
    earliest    integer not null,
    file        integer not null,
    at          integer not null,   -- where in the file its head begins; its rest comes right behind
    head_bytes  integer not null,
    head_crc    integer not null,   -- of its head, and of the other values here, see CachedRun.bound
    rest_bytes  integer not null,
    rest_crc    integer not null,
    body_bytes  integer not null
);
create index if not exists cached_runs_in_order on cached_runs (partition_key, last_ticks, last_tail);
create trigger if not exists pack_gone after delete on packs begin  -- a run whose packs change is forgotten with them
    delete from cached_runs where first_pack = (
        select first_pack from cached_runs where partition_key = old.partition_key and (last_ticks, last_tail) >= (old.last_ticks, old.last_tail)
        order by last_ticks, last_tail limit 1
    ) and (first_ticks, first_tail) <= (old.first_ticks, old.first_tail);
end;
create table if not exists idempotency (    -- by expiry: those that expire first are the first ones, and new ones lie together (docs/decisions/040)
    seq     integer primary key,    -- see queuey/storage/sqlite/remembering.py
    place   integer not null,       -- of queue and key, see there
    queue   blob    not null,
    key     text    not null,
    digest  blob    not null,
    answer  blob    not null,       -- 17 bytes a message: partition, id
    expires integer not null,
    checksum integer not null
);
create index if not exists idempotency_by_place on idempotency (place);
create table if not exists offsets (  -- how far groups have got
    queue      blob    not null,
    name       text    not null,        -- of the group
    partition  integer not null,
    ticks      integer,                 -- the id; null before the first
    tail       integer,
    generation integer not null,
    set_ticks  integer,
    checksum integer not null,
    primary key (queue, name, partition)
) without rowid;
create table if not exists lease_groups (
    queue       blob    not null,
    name        text    not null,
    token       integer not null,
    start_ticks integer not null,
    start_tail  integer not null,
    settings    text    not null,   -- JSON, see queuey/model/lease_groups.py
    checksum integer not null,
    primary key (queue, name)
) without rowid;
create trigger if not exists lease_group_gone after delete on lease_groups begin
    insert or ignore into lease_forgotten values (old.token);
end;
create trigger if not exists lease_group_reset after update of token on lease_groups when new.token <> old.token begin
    insert or ignore into lease_forgotten values (old.token);
end;
create table if not exists lease_changes (  -- of the state of a group in a partition; together, in order, they are the state
    token     integer not null,     -- of the group
    partition integer not null,
    number    integer not null,
    checksum  integer not null,
    change    blob    not null,     -- see queuey/model/lease_codec.py
    primary key (token, partition, number)
) without rowid;
create table if not exists lease_forgotten (token integer primary key);  -- groups whose changes are to be deleted
create table if not exists lease_attempts (     -- by arrival, which is by expiry: each is remembered as long as the others
    seq     integer primary key,
    place   integer not null,       -- of queue, token and key, see queuey/storage/sqlite/remembering.py
    queue   blob    not null,
    token   integer not null,       -- of the group: one that begins anew has another, and no attempts
    key     text    not null,
    digest  blob    not null,
    answer  blob    not null,       -- see queuey/storage/leasing/answers.py
    expires integer not null,       -- on the clock of leases
    checksum integer not null
);
create index if not exists lease_attempts_by_place on lease_attempts (place);
create table if not exists lease_moment (   -- a moment of this boot on the clock of leases
    only    integer primary key check (only = 1),
    boot    text    not null,
    elapsed real    not null,
    ticks   integer not null,
    checksum integer not null
);
create table if not exists tasks (
    queue    blob    not null,
    name     text    not null,
    is_open  integer not null,      -- 1 as long as some server has to work on it
    document text    not null,      -- JSON, see queuey/model/tasks.py
    checksum integer not null,
    primary key (queue, name)
) without rowid;
create index if not exists tasks_open on tasks (queue, name) where is_open = 1;
create table if not exists dropped (queue blob primary key) without rowid;
create table if not exists moment (
    only    integer primary key check (only = 1),
    boot    text    not null,
    elapsed real    not null,
    last    integer not null,       -- newest tick stamped or served as watermark
    checksum integer not null
);
create table if not exists queues (
    application text    not null,
    name        text    not null,
    uuid        blob    not null,
    created     integer not null,
    partitions  integer not null,
    kind        text    not null,
    consistency text    not null,
    principals  text    not null,   -- JSON list
    leases      text    not null,   -- JSON, see LeaseDefaults in queuey/model/lease_groups.py
    retention   text    not null,
    attributes  text    not null,   -- of the SQS door, as JSON
    checksum integer not null,
    primary key (application, name)
) without rowid;
create table if not exists named (  -- which queues name a principal: the triggers keep it
    application text    not null,
    principal   text    not null,
    name        text    not null,
    primary key (application, principal, name)
) without rowid;
create trigger if not exists queue_made after insert on queues when new.principals <> '[]' begin
    insert or ignore into named select new.application, value, new.name from json_each(new.principals);
end;
create trigger if not exists queue_changed after update of principals on queues when new.principals <> old.principals begin
    delete from named where application = old.application and name = old.name
        and principal in (select value from json_each(old.principals));
    insert or ignore into named select new.application, value, new.name from json_each(new.principals);
end;
create trigger if not exists queue_gone after delete on queues when old.principals <> '[]' begin
    delete from named where application = old.application and name = old.name
        and principal in (select value from json_each(old.principals));
end;
create table if not exists removed (queue blob primary key) without rowid;
create table if not exists app_keys (
    digest    blob    primary key,
    principal text    not null,
    label     text    not null,
    created   integer not null,
    checksum integer not null
) without rowid;
