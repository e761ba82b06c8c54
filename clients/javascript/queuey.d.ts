export class QueueyError extends Error {
  /** As the errors page of the documentation lists them; "Unreachable" if there was no answer. */
  readonly code: string;
  /** Of the answer; 0 if there was none. */
  readonly status: number;
  /** The same may succeed later. */
  readonly retriable: boolean;
  readonly requestId: string;
  /** Seconds to wait before the same is tried again. */
  readonly retryAfter: number;
}

export type Body = string | Uint8Array | ArrayBuffer;
export type Headers = Record<string, string | Uint8Array>;

export class Message {
  readonly id: string;
  readonly queue: string;
  readonly partition: number;
  /** Seconds since 1970 as text with seven decimals. */
  readonly timestamp: string;
  readonly date: Date;
  /** Bytes if it is no UTF-8. */
  readonly body: string | Uint8Array;
  readonly contentType: string | null;
  readonly key: string | null;
  readonly headers: Headers;
  /** Of a leased message; null after a pop. */
  readonly receipt?: string | null;
  readonly deliveries?: number;
  readonly failures?: number;
  readonly visibleAt?: string | null;
  json(): unknown;
}

export interface Stored {
  id: string;
  partition: number;
  timestamp: string;
}

export interface Ending {
  signal?: AbortSignal;
}

export interface MessageOptions {
  /** Messages of one key go to one partition. */
  key?: string;
  partition?: number;
  /** Seconds. */
  ttl?: number;
  /** Seconds. */
  delay?: number;
  deliverAt?: Date;
  contentType?: string;
  headers?: Headers;
}

export interface NewMessage extends MessageOptions {
  body: Body;
  idempotencyKey?: string;
}

export interface AppendOptions extends Ending {
  /** Made here if there is none: an append that is sent again stores nothing twice. */
  idempotencyKey?: string;
}

/** A Date, seconds since 1970 as text, a message id, or "now". */
export type Moment = Date | string;

export interface ReadOptions extends Ending {
  since?: Moment;
  until?: Moment;
  limit?: number;
  /** "all", or numbers with commas. */
  partitions?: string;
  order?: "ascending" | "descending";
}

export interface PageOptions extends ReadOptions {
  cursor?: string;
  /** Seconds to wait for a message, 20 at most. */
  wait?: number;
}

export interface Page {
  messages: Message[];
  cursor: string;
  more: boolean;
  watermark: string;
}

export interface FollowOptions extends Ending {
  since?: Moment;
  cursor?: string;
  partitions?: string;
}

export type FollowEvent =
  | { name: "message"; cursor: string; message: Message; data: Record<string, unknown> }
  | { name: "open" | "keepalive" | "reset" | "refused"; cursor?: string; data: Record<string, unknown> }
  | { name: "away"; cursor: string | null; /** Until the next connection. */ ms: number };

export interface ClientOptions {
  application: string;
  /** The application's. Never in a browser. */
  key?: string;
  /** A user's, or one that the server made. A function gives one for each request: then `follow` outlives a token. */
  token?: string | (() => string | Promise<string>);
  /** How long a request is repeated while nobody answers; 60,000 by default. */
  timeoutMs?: number;
}

export interface QueueOptions extends Ending {
  partitions?: number;
  type?: "user" | "public";
  retention?: "ttl" | "acknowledged";
  principals?: string | string[];
}

export class Client {
  constructor(url: string | URL, options: ClientOptions);
  /** End the pauses before the next connections. */
  tryNow(): void;
  queue(name: string): Queue;
  createQueue(name: string, options?: QueueOptions): Promise<Queue>;
  follow(queues: string[], options?: FollowOptions): AsyncGenerator<Message, void, void>;
  events(queues: string[], options?: FollowOptions): AsyncGenerator<FollowEvent, void, void>;
}

export class Queue {
  private constructor();
  readonly name: string;
  append(body: Body, options?: MessageOptions & AppendOptions): Promise<Stored>;
  appendJson(value: unknown, options?: MessageOptions & AppendOptions): Promise<Stored>;
  appendMany(messages: NewMessage[], options?: AppendOptions): Promise<Stored[]>;
  page(options?: PageOptions): Promise<Page>;
  read(options?: ReadOptions): AsyncGenerator<Message, void, void>;
  follow(options?: FollowOptions): AsyncGenerator<Message, void, void>;
  events(options?: FollowOptions): AsyncGenerator<FollowEvent, void, void>;
  remove(...ids: string[]): Promise<void>;
  offsets(group: string): Promise<Map<number, string | null>>;
  commit(group: string, id: string, options?: { partition?: number }): Promise<void>;
  leases(group: string): Leases;
}

export interface Receive {
  max?: number;
  /** Seconds that the lease lasts. */
  visibility?: number;
  /** Seconds to wait for a message, 60 at most. */
  wait?: number;
  /** Without a lease: they are done when they are handed out. */
  pop?: boolean;
}

export interface Step extends Ending {
  acknowledge?: string[];
  release?: { receipt: string; delay?: number; count?: boolean }[];
  reject?: { receipt: string; reason?: string }[];
  extend?: { receipt: string; visibility: number }[];
  append?: { queue: string; messages: Record<string, unknown>[] }[];
  receive?: Receive;
  receiver?: string;
}

export interface Stepped {
  messages: Message[];
  settled?: { acknowledged: number; released: number; rejected: number; extended: number; stale: string[] };
  appended?: { queue: string; messages: { key: string; partition: number; timestamp: string }[] }[];
  /** Messages were held back: the group holds as many as it may. */
  full?: boolean;
}

export interface WorkOptions extends Ending {
  concurrency?: number;
  visibility?: number;
  wait?: number;
  onError?: (error: unknown, message: Message) => void;
}

export class Leases {
  private constructor();
  step(step: Step): Promise<Stepped>;
  receive(options?: Receive & Ending): Promise<Message[]>;
  acknowledge(...messages: (Message | string)[]): Promise<Stepped>;
  release(message: Message | string, options?: { delay?: number; count?: boolean }): Promise<Stepped>;
  reject(message: Message | string, reason?: string): Promise<Stepped>;
  extend(message: Message | string, visibility: number): Promise<Stepped>;
  work(job: (message: Message) => unknown, options?: WorkOptions): Promise<void>;
}

/** A text that sorts ids as their messages. */
export function order(id: string): string;
