-- Statements of the embedded store. "-- name: purpose" opens each; the modules of queuey/storage/sqlite call them by name. Values are bound in the order in which a statement first names them, or, given by name, as they are named.

-- read_ascending: a span: messages, from the covering index to the rows, and packs, by their last ids; the last column distinguishes the two
select ticks, tail, expires, content_type, key, body, checksum, headers, null from messages
where partition_key = :partition_key and (ticks, tail) > (:after_ticks, :after_tail) and (ticks, tail) <= (:upto_ticks, :upto_tail) and expires > :now
union all
select last_ticks, last_tail, latest, first_ticks, first_tail, messages, earliest, null, seq from packs
where partition_key = :partition_key and (last_ticks, last_tail) > (:after_ticks, :after_tail) and (first_ticks, first_tail) <= (:upto_ticks, :upto_tail) and latest > :now
    and last_ticks <= ifnull((
        select last_ticks from packs where partition_key = :partition_key and (last_ticks, last_tail) >= (:upto_ticks, :upto_tail) order by last_ticks, last_tail limit 1
    ), 9223372036854775807)
order by ticks, tail

-- read_descending: the same, newest first
select ticks, tail, expires, content_type, key, body, checksum, headers, null from messages
where partition_key = :partition_key and (ticks, tail) > (:after_ticks, :after_tail) and (ticks, tail) <= (:upto_ticks, :upto_tail) and expires > :now
union all
select last_ticks, last_tail, latest, first_ticks, first_tail, messages, earliest, null, seq from packs
where partition_key = :partition_key and (last_ticks, last_tail) > (:after_ticks, :after_tail) and (first_ticks, first_tail) <= (:upto_ticks, :upto_tail) and latest > :now
    and last_ticks <= ifnull((
        select last_ticks from packs where partition_key = :partition_key and (last_ticks, last_tail) >= (:upto_ticks, :upto_tail) order by last_ticks, last_tail limit 1
    ), 9223372036854775807)
order by ticks desc, tail desc

-- ids_ascending: ids only, from the indexes alone
select ticks, tail, expires, null, null, x'', 0, null, null from messages
where partition_key = :partition_key and (ticks, tail) > (:after_ticks, :after_tail) and (ticks, tail) <= (:upto_ticks, :upto_tail) and expires > :now
union all
select last_ticks, last_tail, latest, first_ticks, first_tail, messages, earliest, null, seq from packs
where partition_key = :partition_key and (last_ticks, last_tail) > (:after_ticks, :after_tail) and (first_ticks, first_tail) <= (:upto_ticks, :upto_tail) and latest > :now
    and last_ticks <= ifnull((
        select last_ticks from packs where partition_key = :partition_key and (last_ticks, last_tail) >= (:upto_ticks, :upto_tail) order by last_ticks, last_tail limit 1
    ), 9223372036854775807)
order by ticks, tail

-- ids_descending: the same, newest first
select ticks, tail, expires, null, null, x'', 0, null, null from messages
where partition_key = :partition_key and (ticks, tail) > (:after_ticks, :after_tail) and (ticks, tail) <= (:upto_ticks, :upto_tail) and expires > :now
union all
select last_ticks, last_tail, latest, first_ticks, first_tail, messages, earliest, null, seq from packs
where partition_key = :partition_key and (last_ticks, last_tail) > (:after_ticks, :after_tail) and (first_ticks, first_tail) <= (:upto_ticks, :upto_tail) and latest > :now
    and last_ticks <= ifnull((
        select last_ticks from packs where partition_key = :partition_key and (last_ticks, last_tail) >= (:upto_ticks, :upto_tail) order by last_ticks, last_tail limit 1
    ), 9223372036854775807)
order by ticks desc, tail desc

-- id_after: the id of the n-th message in no pack after another
select ticks, tail from messages
where partition_key = :partition_key and (ticks, tail) > (:after_ticks, :after_tail) and (ticks, tail) <= (:upto_ticks, :upto_tail) and expires > :now
order by ticks, tail limit 1 offset :offset

-- count: the number of messages in no pack in a span, counted up to a limit
select count(*) from (
    select 1 from messages
    where partition_key = :partition_key and (ticks, tail) > (:after_ticks, :after_tail) and (ticks, tail) <= (:upto_ticks, :upto_tail) and expires > :now limit :limit
)

-- fetch: one message by id, if it is in no pack
select ticks, tail, expires, content_type, key, body, checksum, headers, null from messages
where partition_key = :partition_key and ticks = :ticks and tail = :tail and expires > :now

-- packs_in: the packs of a span, in order
select first_ticks, first_tail, last_ticks, last_tail, messages, earliest, seq from packs
where partition_key = :partition_key and (last_ticks, last_tail) > (:after_ticks, :after_tail) and (first_ticks, first_tail) <= (:upto_ticks, :upto_tail) and latest > :now
    and last_ticks <= ifnull((
        select last_ticks from packs where partition_key = :partition_key and (last_ticks, last_tail) >= (:upto_ticks, :upto_tail) order by last_ticks, last_tail limit 1
    ), 9223372036854775807)
order by last_ticks, last_tail

-- pack_over: the pack with an id between its ends, both included
select seq, last_ticks, last_tail from (
    select seq, first_ticks, first_tail, last_ticks, last_tail from packs
    where partition_key = ?1 and (last_ticks, last_tail) >= (?2, ?3) order by last_ticks, last_tail limit 1
) where (first_ticks, first_tail) <= (?2, ?3)

-- pack_head: the ids and expiries of a pack
select head, head_crc from packs where seq = ?1

-- pack: a whole pack
select head, head_crc, rest, rest_crc from packs where seq = ?1

-- pack_insert: store messages as a pack
insert into packs (
    partition_key, first_ticks, first_tail, last_ticks, last_tail, messages, earliest, latest, bytes, head_crc, rest_crc, head, rest
) values (:partition_key, :first_ticks, :first_tail, :last_ticks, :last_tail, :messages, :earliest, :latest, :bytes, :head_crc, :rest_crc, :head, :rest)

-- pack_delete: delete a pack; its messages, and the bytes of their bodies
delete from packs where seq = ?1 returning messages, bytes

-- pack_size: the size of a pack's rest
select length(rest) from packs where seq = ?1

-- cached_runs_ahead: the first two runs that end after an id: it may lie in the first of them. Each value is read as a number, whatever a flipped bit has made of it
select first_pack, cast(first_ticks as integer), cast(first_tail as integer), cast(last_ticks as integer), cast(last_tail as integer),
    cast(messages as integer), cast(earliest as integer), cast(file as integer), cast(at as integer),
    cast(head_bytes as integer), cast(head_crc as integer), cast(rest_bytes as integer), cast(rest_crc as integer), cast(body_bytes as integer)
from cached_runs where partition_key = ?1 and (last_ticks, last_tail) > (?2, ?3) order by last_ticks, last_tail limit 2

-- cached_run_over: whether a run has the pack that ends with this id
select 1 from (
    select first_ticks, first_tail from cached_runs
    where partition_key = ?1 and (last_ticks, last_tail) >= (?2, ?3) order by last_ticks, last_tail limit 1
) where (first_ticks, first_tail) <= (?2, ?3)

-- cached_run_insert: store a new run
insert into cached_runs values (:first_pack, :partition_key, :first_ticks, :first_tail, :last_ticks, :last_tail, :messages, :earliest, :file, :at, :head_bytes, :head_crc, :rest_bytes, :rest_crc, :body_bytes)

-- cached_run_delete: delete a run that cannot be used
delete from cached_runs where first_pack = ?1

-- cached_runs_delete: delete the runs of a file
delete from cached_runs where file = ?1

-- cached_runs_delete_all: delete all runs, if none are cached any more
delete from cached_runs

-- cached_run_files: files that have any run
select distinct cast(file as integer) from cached_runs

-- any_between: whether a message in no pack lies between two ids, both included
select 1 from messages where partition_key = :partition_key and (ticks, tail) >= (:first_ticks, :first_tail) and (ticks, tail) <= (:last_ticks, :last_tail) limit 1

-- delete_between: delete messages in no pack between two ids, both included; 1 and the bytes of its body for each
delete from messages where partition_key = :partition_key and (ticks, tail) >= (:first_ticks, :first_tail) and (ticks, tail) <= (:last_ticks, :last_tail)
returning 1, length(body)

-- packs_delete_between: delete the packs between two ids; the messages of each, and the bytes of their bodies
delete from packs where partition_key = :partition_key and (last_ticks, last_tail) >= (:first_ticks, :first_tail) and (last_ticks, last_tail) <= (:last_ticks, :last_tail)
returning messages, bytes

-- span_rows: the first messages in no pack of a span, and the bytes of their bodies
select ticks, tail, length(body) from messages
where partition_key = ?1 and (ticks, tail) > (?2, ?3) and (ticks, tail) <= (?4, ?5) order by ticks, tail limit ?6

-- span_packs: the first packs with messages in a span, the last of which may lie behind it
select first_ticks, first_tail, messages, seq, last_ticks, last_tail, bytes from packs
where partition_key = ?1 and (last_ticks, last_tail) > (?2, ?3) and (first_ticks, first_tail) <= (?4, ?5)
    and last_ticks <= ifnull((
        select last_ticks from packs where partition_key = ?1 and (last_ticks, last_tail) >= (?4, ?5) order by last_ticks, last_tail limit 1
    ), 9223372036854775807)
order by last_ticks, last_tail limit ?6

-- delete_message: delete a message by id
delete from messages where partition_key = ?1 and ticks = ?2 and tail = ?3

-- delete_counted: the same; 1 and the bytes of its body, if it is there
delete from messages where partition_key = ?1 and ticks = ?2 and tail = ?3 returning 1, length(body)

-- snapshot_begin: read anything
select 1 from dropped limit 1

-- count_rows: messages of a partition in no pack, counted up to a limit; the live ones, and the bytes of their bodies
select count(*), count(*) filter (where expires > ?2), ifnull(sum(size) filter (where expires > ?2), 0)
from (select expires, length(body) as size from messages where partition_key = ?1 limit ?3)

-- count_packs: packs of a partition, counted up to a limit; the messages of those in which none has expired, and the bytes of their bodies
select count(*), ifnull(sum(messages) filter (where earliest > ?2), 0), ifnull(sum(bytes) filter (where earliest > ?2), 0)
from (select earliest, messages, bytes from packs indexed by packs_in_order where partition_key = ?1 limit ?3)

-- expired_rows: messages of a partition in no pack that have expired, and the bytes of their bodies
select count(*), ifnull(sum(length(body)), 0) from messages indexed by messages_by_expiry where expires <= ?2 and partition_key = ?1

-- expired_packs: messages of a partition in packs that have expired, and the bytes of their bodies
select ifnull(sum(messages), 0), ifnull(sum(bytes), 0) from packs indexed by packs_by_expiry where latest <= ?2 and partition_key = ?1

-- packs_expiring: packs of a partition of which some messages have expired and some have not. The second part finds those that have no entry in the index of the first
select seq, messages, bytes from packs indexed by packs_expiring
where partition_key = ?1 and earliest <= ?2 and latest > ?2 and latest - earliest > 10000
union all
select seq, messages, bytes from packs indexed by packs_by_expiry
where latest > ?2 and latest <= ?2 + 10000 and partition_key = ?1 and earliest <= ?2 and latest - earliest <= 10000

-- scheduled: live messages of a partition that are not yet due
select count(*) from messages where partition_key = ?1 and ticks > ?2 and expires > ?2

-- idempotency_find: what an idempotency key stands for
select seq, place, queue, key, digest, answer, expires, checksum from idempotency indexed by idempotency_by_place where place = ?1 and queue = ?2 and key = ?3 and expires > ?4 order by seq desc limit 1

-- refuse: whether there is anything to purge
select exists (select 1 from messages where expires <= ?1) or exists (select 1 from packs where latest <= ?1)
    or exists (select 1 from (select expires from idempotency order by seq limit 1) where expires <= ?1)
    or exists (select 1 from dropped) or exists (select 1 from lease_forgotten)
    or exists (select 1 from (select expires from lease_attempts order by seq limit 1) where expires <= ?2)

-- purge_expired: give back the space of expired messages, some at a time. The row decides, not the index, which may be damaged
delete from messages where seq in (select seq from messages where expires <= :now limit :rows) and expires <= :now

-- purge_expired_packs: the same for a pack whose messages have all expired
delete from packs where seq in (select seq from packs where latest <= :now limit 1) and latest <= :now

-- purge_idempotency: forget idempotency keys older than a day: they lie in the order of their expiry
delete from idempotency where seq in (select seq from idempotency order by seq limit :rows) and expires <= :now

-- drop_queue: make the incarnation's messages unreadable for good
insert or ignore into dropped (queue) values (?1)

-- dropped_all: incarnations that still have rows. A flipped bit may make text of one, or another length: no range of other queues' rows may begin there
select cast(queue as blob) from dropped where length(cast(queue as blob)) = 16

-- dropped_find: whether an incarnation still has rows
select 1 from dropped where queue in (?1, cast(?1 as text))

-- dropped_some: some of them
select cast(queue as blob) from dropped where length(cast(queue as blob)) = 16 limit ?1

-- purge_dropped: give back the space of a dropped incarnation, some at a time
delete from messages where seq in (select seq from messages where partition_key > :queue and partition_key < :end limit :rows) and partition_key > :queue and partition_key < :end

-- purge_dropped_packs: the same for one of its packs
delete from packs where seq in (select seq from packs where partition_key > :queue and partition_key < :end limit 1) and partition_key > :queue and partition_key < :end

-- purge_dropped_idempotency: the same for its idempotency keys
delete from idempotency where seq in (select seq from idempotency where place between :first_place and :last_place and queue = :queue limit :rows)

-- purge_dropped_offsets: the same for its groups' offsets
delete from offsets where (queue, name, partition) in (select queue, name, partition from offsets where queue = :queue limit :rows)

-- purge_dropped_leases: the same for its lease groups, whose changes the next statement deletes
delete from lease_groups where (queue, name) in (select queue, name from lease_groups where queue = :queue limit :rows)

-- purge_lease_changes: give back the space of a forgotten lease group, some at a time
delete from lease_changes where (token, partition, number) in (
    select token, partition, number from lease_changes where token in (select token from lease_forgotten) limit :rows
)

-- purge_lease_forgotten: forget groups without changes
delete from lease_forgotten where not exists (select 1 from lease_changes where lease_changes.token = lease_forgotten.token)

-- purge_lease_attempts: forget attempts that cannot be repeated any more: they lie in the order of their expiry
delete from lease_attempts where seq in (select seq from lease_attempts order by seq limit :rows) and expires <= :lease_now

-- purge_dropped_tasks: the same for its tasks
delete from tasks where (queue, name) in (select queue, name from tasks where queue = :queue limit :rows)

-- task_find: one task
select queue, name, is_open, document, checksum from tasks where queue = ?1 and name = ?2

-- task_keep: store a task in place of the one of its name
insert or replace into tasks (queue, name, is_open, document, checksum) values (?1, ?2, ?3, ?4, ?5)

-- task_list: one page of a queue's tasks by name
select queue, name, is_open, document, checksum from tasks where queue = ?1 and name >= ?2 order by name limit ?3

-- task_open: tasks that some server has to work on
select queue, name, is_open, document, checksum from tasks where is_open = 1 limit ?1

-- purge_dropped_attempts: the same for those of a dropped incarnation
delete from lease_attempts where seq in (select seq from lease_attempts where place between :first_place and :last_place and queue = :queue limit :rows)

-- lease_group: one lease group
select queue, name, token, start_ticks, start_tail, settings, checksum from lease_groups where queue = ?1 and name = ?2

-- lease_group_keep: make a lease group, change its settings, or let it begin anew
insert into lease_groups (queue, name, token, start_ticks, start_tail, settings, checksum) values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
on conflict (queue, name) do update
set token = excluded.token, start_ticks = excluded.start_ticks, start_tail = excluded.start_tail, settings = excluded.settings,
    checksum = excluded.checksum

-- lease_group_names: one page of lease groups by name
select name from lease_groups where queue = ?1 and name >= ?2 order by name limit ?3

-- lease_group_forget: forget a lease group; its attempts belong to nobody then, and expire
delete from lease_groups where queue = ?1 and name = ?2

-- lease_changes: the changes of a group's state in a partition, in order
select number, checksum, change from lease_changes where token = ?1 and partition = ?2 order by number

-- lease_changes_bytes: about how many bytes they have; a few changes may have thousands of messages, so no more are looked at
select count(*), sum(length(change)) from (select change from lease_changes where token = ?1 and partition = ?2 limit 32)

-- lease_changes_last: the number of the last of them
select max(number) from lease_changes where token = ?1 and partition = ?2

-- lease_changes_fold: delete the changes before a number
delete from lease_changes where token = ?1 and partition = ?2 and number < ?3

-- lease_attempt: the answer to an attempt, as it was last remembered
select place, queue, token, key, digest, answer, checksum from lease_attempts indexed by lease_attempts_by_place
where place = ?1 and token = ?2 and key = ?3 and expires > ?4 order by seq desc limit 1

-- lease_attempts_bound: let no attempt be remembered longer than from now on
update lease_attempts set expires = ?1 where expires > ?1

-- lease_moment: a moment on the clock of leases
select boot, elapsed, ticks, checksum from lease_moment

-- lease_moment_keep: note a moment on the clock of leases
insert or replace into lease_moment (only, boot, elapsed, ticks, checksum) values (1, ?1, ?2, ?3, ?4)

-- drop_done: forget a dropped incarnation without rows
delete from dropped where queue in (?1, cast(?1 as text))

-- offset_find: the offsets of one group
select queue, name, partition, ticks, tail, generation, set_ticks, checksum from offsets where queue = ?1 and name = ?2

-- offset_keep: set the offset of one partition
insert or replace into offsets (queue, name, partition, ticks, tail, generation, set_ticks, checksum)
values (:queue, :name, :partition, :ticks, :tail, :generation, :set_ticks, :checksum)

-- offset_groups: one page of groups by name
select distinct name from offsets where queue = ?1 and name >= ?2 order by name limit ?3

-- offset_forget: delete a group's offsets
delete from offsets where queue = ?1 and name = ?2

-- moment_read: the newest moment known from before a restart
select boot, elapsed, last, checksum from moment

-- moment_keep: remember the newest moment
insert or replace into moment (only, boot, elapsed, last, checksum) values (1, ?1, ?2, ?3, ?4)

-- scrub_rows: messages after a row that the index does not lead to, among the next few. Each search casts: a flipped bit makes text of a number or a blob, and apsw raises for text that is not UTF-8
select cast(partition_key as blob), seq from (
    select seq, partition_key, ticks, tail, expires from messages not indexed where seq > ?1 order by seq limit ?2
) as it where not exists (
    select 1 from messages as other indexed by messages_in_order
    where other.partition_key = it.partition_key and other.ticks = it.ticks and other.tail = it.tail and other.expires = it.expires and other.seq = it.seq
)

-- scrub_rows_next: the row at which that ends
select seq from messages not indexed where seq > ?1 order by seq limit 1 offset ?2 - 1

-- scrub_entries: entries of the index after an id that lead to no such message, among the next few
select cast(partition_key as blob), seq from (
    select partition_key, ticks, tail, expires, seq from messages indexed by messages_in_order
    where (partition_key, ticks, tail) > (:partition_key, :ticks, :tail) order by partition_key, ticks, tail limit :rows
) as it where not exists (
    select 1 from messages as other not indexed
    where other.seq = it.seq and other.partition_key = it.partition_key and other.ticks = it.ticks and other.tail = it.tail and other.expires = it.expires
)

-- scrub_entries_next: the entry at which that ends
select cast(partition_key as blob), cast(ticks as integer), cast(tail as integer) from messages indexed by messages_in_order
where (partition_key, ticks, tail) > (:partition_key, :ticks, :tail) order by partition_key, ticks, tail limit 1 offset :rows - 1

-- scrub_packs: packs after a row that the index does not lead to, among the next few
select cast(partition_key as blob), seq from (
    select seq, partition_key, last_ticks, last_tail, first_ticks, first_tail, messages, earliest, latest
    from packs not indexed where seq > ?1 order by seq limit ?2
) as it where not exists (
    select 1 from packs as other indexed by packs_in_order
    where other.partition_key = it.partition_key and other.last_ticks = it.last_ticks and other.last_tail = it.last_tail
        and other.first_ticks = it.first_ticks and other.first_tail = it.first_tail and other.messages = it.messages
        and other.earliest = it.earliest and other.latest = it.latest and other.seq = it.seq
)

-- scrub_packs_next: the row at which that ends
select seq from packs not indexed where seq > ?1 order by seq limit 1 offset ?2 - 1

-- scrub_pack_entries: entries of the packs' index after an id that lead to no such pack, among the next few
select cast(partition_key as blob), seq from (
    select partition_key, last_ticks, last_tail, first_ticks, first_tail, messages, earliest, latest, seq from packs indexed by packs_in_order
    where (partition_key, last_ticks, last_tail) > (:partition_key, :ticks, :tail) order by partition_key, last_ticks, last_tail limit :rows
) as it where not exists (
    select 1 from packs as other not indexed
    where other.seq = it.seq and other.partition_key = it.partition_key and other.last_ticks = it.last_ticks and other.last_tail = it.last_tail
        and other.first_ticks = it.first_ticks and other.first_tail = it.first_tail and other.messages = it.messages
        and other.earliest = it.earliest and other.latest = it.latest
)

-- scrub_pack_entries_next: the entry at which that ends
select cast(partition_key as blob), cast(last_ticks as integer), cast(last_tail as integer) from packs indexed by packs_in_order
where (partition_key, last_ticks, last_tail) > (:partition_key, :ticks, :tail) order by partition_key, last_ticks, last_tail limit 1 offset :rows - 1

-- scrub_heads: what the packs after a row say about themselves, and their heads. max() makes an empty blob of anything that is no blob
select seq, cast(partition_key as blob), cast(first_ticks as integer), cast(first_tail as integer), cast(last_ticks as integer),
    cast(last_tail as integer), cast(messages as integer), cast(earliest as integer), cast(latest as integer), cast(head_crc as integer),
    max(head, x'')
from packs not indexed where seq > ?1 order by seq limit ?2

-- scrub_inside: whether a message in no pack, or the end of another pack, lies between the ends of a pack
select exists (
    select 1 from messages where partition_key = :partition_key and (ticks, tail) >= (:first_ticks, :first_tail) and (ticks, tail) <= (:last_ticks, :last_tail)
) or exists (
    select 1 from packs where partition_key = :partition_key and (last_ticks, last_tail) >= (:first_ticks, :first_tail) and (last_ticks, last_tail) < (:last_ticks, :last_tail)
)

-- verify_rows: messages in no pack after a row, with what their checksum covers
select seq, cast(partition_key as blob), cast(ticks as integer), cast(tail as integer), max(content_type, x''), max(key, x''), max(headers, x''), max(body, x''),
    cast(checksum as integer)
from messages not indexed where seq > ?1 order by seq limit ?2

-- verify_packs: packs after a row
select seq, cast(partition_key as blob), max(head, x''), cast(head_crc as integer), max(rest, x''), cast(rest_crc as integer) from packs not indexed where seq > ?1 order by seq limit ?2

-- verify_lease_changes: changes of lease groups after one, with what their checksum covers
select cast(token as integer), cast(partition as integer), cast(number as integer), cast(checksum as integer), max(change, x'')
from lease_changes where (token, partition, number) > (?1, ?2, ?3) order by token, partition, number limit ?4

-- verify_groups: the queues of lease groups, by the groups' tokens
select cast(token as integer), cast(queue as blob) from lease_groups

-- verify_unknown: partitions with messages whose queue nobody knows; nothing where the queues are in another file
with recursive
    in_rows (place) as (
        select min(partition_key) from messages
        union all select (select min(partition_key) from messages where partition_key > place) from in_rows where place is not null
    ),
    in_packs (place) as (
        select min(partition_key) from packs
        union all select (select min(partition_key) from packs where partition_key > place) from in_packs where place is not null
    )
select cast(place as blob) from (select place from in_rows union select place from in_packs)
where place is not null and exists (select 1 from queues) and substr(place, 1, 16) not in (
    select uuid from queues union all select queue from removed union all select queue from dropped
)

-- has_queues: whether a file knows a queue, or one that was removed a moment ago
select exists (select 1 from queues) or exists (select 1 from removed)

-- has_messages: whether a file has messages of a queue that was not dropped
with recursive
    in_rows (place) as (
        select min(partition_key) from messages
        union all select (select min(partition_key) from messages where partition_key > place) from in_rows where place is not null
    ),
    in_packs (place) as (
        select min(partition_key) from packs
        union all select (select min(partition_key) from packs where partition_key > place) from in_packs where place is not null
    )
select exists (
    select 1 from (select place from in_rows union all select place from in_packs)
    where place is not null and substr(place, 1, 16) not in (select cast(queue as blob) from dropped)
)

-- verify_sense: rows of small tables that make no sense, by what they are
select 'settings of lease groups that make no sense', count(*) from lease_groups where json_valid(settings) = 0
union all select 'tasks that make no sense', count(*) from tasks where json_valid(document) = 0
union all select 'queues that make no sense', count(*) from queues
where json_valid(principals) = 0 or (leases <> '' and json_valid(leases) = 0)
    or (attributes <> '' and json_valid(attributes) = 0) or length(cast(uuid as blob)) <> 16
union all select 'removed queues that make no sense', count(*) from (select queue from removed union all select queue from dropped)
where typeof(queue) <> 'blob' or length(queue) <> 16

-- verify_named: how many entries of the index of principals are missing, and how many have no queue
with told (application, principal, name) as (
    select queues.application, each.value, queues.name from queues, json_each(queues.principals) as each where json_valid(queues.principals)
)
select
    (select count(*) from (select * from told except select application, principal, name from named)),
    (select count(*) from (select application, principal, name from named except select * from told))

-- rebuild_named: the index of principals, from the queues
insert or ignore into named select queues.application, each.value, queues.name
from queues, json_each(queues.principals) as each where json_valid(queues.principals)

-- rebuild_removed: incarnations that are still to be dropped, as bytes
insert or ignore into removed select cast(queue as blob) from former.removed where length(cast(queue as blob)) = 16

-- rebuild_dropped: the same of those that still have rows
insert or ignore into dropped select cast(queue as blob) from former.dropped where length(cast(queue as blob)) = 16

-- verify_size: the approximate number of rows
select ifnull((select max(seq) from messages), 0), ifnull((select max(seq) from packs), 0)

-- queue_of: find a queue by incarnation
select application, name from queues where uuid = ?1

-- queue_find: find a queue by exact name
select application, name, uuid, created, partitions, kind, consistency, principals, leases, retention, attributes, checksum from queues
where application = ?1 and name = ?2

-- queues_find: several by exact name, as one row: a statement releases the interpreter at each of its rows
select json_group_array(json_array(
    found.application, found.name, hex(found.uuid), found.created, found.partitions, found.kind, found.consistency,
    found.principals, found.leases,
    found.retention, found.attributes, found.checksum
)) from json_each(?1) as asked cross join queues as found
where found.application = asked.value ->> 0 and found.name = asked.value ->> 1

-- queue_insert: store a new queue
insert into queues (application, name, uuid, created, partitions, kind, consistency, principals, leases, retention, attributes, checksum)
values (:application, :name, :uuid, :created, :partitions, :kind, :consistency, :principals, :leases, :retention, :attributes, :checksum)

-- queue_update: change the settings of an existing queue
update queues set partitions = :partitions, kind = :kind, consistency = :consistency, principals = :principals,
    leases = :leases, retention = :retention, attributes = :attributes, checksum = :checksum
where application = :application and name = :name and uuid = :uuid

-- queue_delete: delete one incarnation
delete from queues where application = ?1 and name = ?2 and uuid = ?3

-- queue_list: one page of queues by name
select application, name, uuid, created, partitions, kind, consistency, principals, leases, retention, attributes, checksum from queues
where application = ?1 and name >= ?2 order by name limit ?3

-- queue_list_named: one page by name of the queues that name a principal
select queues.application, queues.name, uuid, created, partitions, kind, consistency, principals, leases, retention, attributes, checksum
from named cross join queues on queues.application = named.application and queues.name = named.name
where named.application = :application and named.principal = :principal and named.name >= :start order by named.name limit :limit

-- removed_keep: note an incarnation whose messages are to be dropped
insert or ignore into removed (queue) values (?1)

-- removed_list: incarnations that are still to be dropped; a flipped bit may have made text of one
select cast(queue as blob) from removed where length(cast(queue as blob)) = 16 limit ?1

-- removed_forget: forget an incarnation that is dropped
delete from removed where queue in (?1, cast(?1 as text))

-- key_insert: store the digest of a key
insert or ignore into app_keys (digest, principal, label, created, checksum) values (:digest, :principal, :label, :created, :checksum)

-- key_list: all keys, oldest first; no value as text, since a damaged one may be no UTF-8. max() makes an empty blob of anything that is no blob
select max(digest, x''), cast(principal as blob), cast(label as blob), cast(created as integer), cast(checksum as integer)
from app_keys order by created, digest

-- key_delete: delete keys by label
delete from app_keys where principal = :principal and label = :label
