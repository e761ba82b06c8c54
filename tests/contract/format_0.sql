-- A store as the last version without packs left it when it was killed: what test_sqlite_formats.py says it stored.
BEGIN TRANSACTION;
CREATE TABLE app_keys (
    digest      blob    primary key,
    application text    not null,
    label       text    not null,
    created     integer not null
) without rowid;
INSERT INTO app_keys VALUES(X'646967657374','app','label',140192928000000000);
CREATE TABLE dropped (queue blob primary key) without rowid;
INSERT INTO dropped VALUES(X'00000000000000000000000000000002');
CREATE TABLE messages (
    seq          integer primary key,
    place        blob    not null,  -- uuid of the queue's incarnation, then one byte of partition number
    ticks        integer not null,  -- the id, see queuey/ids.py
    tail         integer not null,
    expires      integer not null,  -- ticks
    seal         integer not null,  -- length and CRC32C, see seal_of
    content_type blob,              -- UTF-8, as blobs: a damaged text would fail the whole page
    key          blob,
    body         blob    not null
);
INSERT INTO messages VALUES(1,X'0000000000000000000000000000000201',140192928000000001,-5025199230942195533,140192964000000001,18731579712,NULL,NULL,X'676F6E65');
INSERT INTO messages VALUES(2,X'0000000000000000000000000000000101',140192928000000002,-5025199230942195533,140192928050000002,12814338122,NULL,X'6BC3BC',X'30FF');
INSERT INTO messages VALUES(3,X'0000000000000000000000000000000102',140192928000000003,-5025199230942195533,140192938000000003,9830278269,X'746578742F706C61696E',NULL,X'31FF');
INSERT INTO messages VALUES(4,X'0000000000000000000000000000000101',140192928000000004,-5025199230942195533,140192938000000004,8598230617,NULL,NULL,X'32FF');
INSERT INTO messages VALUES(7,X'0000000000000000000000000000000102',140192928000000007,-5025199230942195533,140192928050000007,10916120045,X'746578742F706C61696E',NULL,X'35FF');
INSERT INTO messages VALUES(8,X'0000000000000000000000000000000101',140192928000000008,-5025199230942195533,140192938000000008,11051130868,NULL,X'6BC3BC',X'36FF');
INSERT INTO messages VALUES(9,X'0000000000000000000000000000000102',140192928000000009,-5025199230942195533,140192938000000009,12532757801,X'746578742F706C61696E',NULL,X'37FF');
INSERT INTO messages VALUES(10,X'0000000000000000000000000000000101',140192928000000010,-5025199230942195533,140192938000000010,11713602817,NULL,NULL,X'38FF');
INSERT INTO messages VALUES(11,X'0000000000000000000000000000000102',140192928000000011,-5025199230942195533,140192938000000011,8680413599,X'746578742F706C61696E',X'6BC3BC',X'39FF');
INSERT INTO messages VALUES(12,X'0000000000000000000000000000000101',140192928000000012,-5025199230942195533,140192928050000012,15075993335,NULL,NULL,X'3130FF');
INSERT INTO messages VALUES(13,X'0000000000000000000000000000000102',140192928000000013,-5025199230942195533,140192938000000013,13449095391,X'746578742F706C61696E',NULL,X'3131FF');
INSERT INTO messages VALUES(14,X'0000000000000000000000000000000101',140192928610000000,-5025417152886286718,140192938610000000,21742841137,NULL,NULL,X'6C61746572');
INSERT INTO messages VALUES(15,X'0000000000000000000000000000000102',140192928000000005,-5025199230942195533,140192938010000003,16347289770,X'612F62',NULL,X'707574');
CREATE INDEX messages_by_expiry on messages (expires);
CREATE INDEX messages_in_order on messages (place, ticks, tail, expires);
CREATE TABLE moment (
    only    integer primary key check (only = 1),
    boot    text    not null,
    elapsed real    not null,
    last    integer not null        -- newest tick stamped or served as watermark
);
INSERT INTO moment VALUES(1,'manual',1000.0,140192928000000000);
CREATE TABLE named (  -- which queues name a principal: the triggers keep it, also where an older version opens the file
    application text    not null,
    principal   text    not null,
    name        text    not null,
    primary key (application, principal, name)
) without rowid;
INSERT INTO named VALUES('app','app:other','log');
CREATE TABLE offsets (  -- how far groups have got
    queue      blob    not null,
    name       text    not null,        -- of the group
    partition  integer not null,
    ticks      integer,                 -- the id; null before the first
    tail       integer,
    generation integer not null,
    set_ticks  integer,
    primary key (queue, name, partition)
) without rowid;
INSERT INTO offsets VALUES(X'00000000000000000000000000000001','group',1,140192928000000004,-5025199230942195533,7,140192928010000000);
CREATE TABLE once (
    queue   blob    not null,
    key     text    not null,
    digest  blob    not null,
    answer  blob    not null,       -- 17 bytes a message: partition, id
    expires integer not null,
    primary key (queue, key)
) without rowid;
INSERT INTO once VALUES(X'00000000000000000000000000000001','batch',X'64',X'01A976400210B911F2BAC2676C129F503302A976400310B911F2BAC2676C129F503301A976400410B911F2BAC2676C129F503302A976400510B911F2BAC2676C129F503301A976400610B911F2BAC2676C129F503302A976400710B911F2BAC2676C129F503301A976400810B911F2BAC2676C129F503302A976400910B911F2BAC2676C129F503301A976400A10B911F2BAC2676C129F503302A976400B10B911F2BAC2676C129F503301A976400C10B911F2BAC2676C129F503302A976400D10B911F2BAC2676C129F5033',140193792000000000);
CREATE INDEX once_by_expiry on once (expires);
CREATE TABLE queues (
    application text    not null,
    name        text    not null,
    uuid        blob    not null,
    created     integer not null,
    partitions  integer not null,
    kind        text    not null,
    consistency text    not null,
    principals  text    not null,   -- JSON list
    primary key (application, name)
) without rowid;
INSERT INTO queues VALUES('app','log',X'00000000000000000000000000000001',140192928000000000,2,'user','strong','["app:other"]');
CREATE TRIGGER queue_changed after update of principals on queues when new.principals <> old.principals begin
    delete from named where application = old.application and name = old.name
        and principal in (select value from json_each(old.principals));
    insert or ignore into named select new.application, value, new.name from json_each(new.principals);
end;
CREATE TRIGGER queue_gone after delete on queues when old.principals <> '[]' begin
    delete from named where application = old.application and name = old.name
        and principal in (select value from json_each(old.principals));
end;
CREATE TRIGGER queue_made after insert on queues when new.principals <> '[]' begin
    insert or ignore into named select new.application, value, new.name from json_each(new.principals);
end;
CREATE TABLE removed (queue blob primary key) without rowid;
INSERT INTO removed VALUES(X'00000000000000000000000000000002');
COMMIT TRANSACTION;
