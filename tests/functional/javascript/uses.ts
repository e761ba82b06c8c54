// What the types allow, and what they must not. The compiler reads it; nobody runs it.
import { Client, Leases, Message, Queue, QueueyError, order } from "queuey-client";
import type { Body, FollowEvent, Moment, NewMessage, Page, Step, Stepped, Stored } from "queuey-client";

export async function writes(client: Client): Promise<Stored[]> {
  const queue: Queue = await client.createQueue("letters", { partitions: 2, retention: "ttl", principals: ["app:demo"] });
  const body: Body = new Uint8Array([1]);
  const message: NewMessage = { body, key: "ann", headers: { kind: "order", raw: new Uint8Array([0]) }, deliverAt: new Date() };
  const one = await queue.append("text", { ttl: 60, idempotencyKey: "once", signal: new AbortController().signal });
  await queue.appendJson({ deep: [1, null] });
  await queue.remove(one.id, `2:${one.id}`);
  await queue.commit("mail", one.id, { partition: one.partition });
  const offsets: Map<number, string | null> = await queue.offsets("mail");
  return [one, ...(await queue.appendMany([message], { idempotencyKey: `${offsets.size}` }))];
}

export async function reads(client: Client, since: Moment): Promise<string> {
  const queue = client.queue("letters");
  const page: Page = await queue.page({ since, limit: 10, wait: 20, partitions: "all", order: "descending" });
  for await (const message of queue.read({ since, until: new Date() })) order(message.id);
  for await (const message of client.follow(["letters", "news"], { cursor: page.cursor })) return message.queue;
  for await (const event of queue.events()) tells(event);
  client.tryNow();
  return page.messages.map((message) => message.date.toISOString()).join();
}

export function tells(event: FollowEvent): string | null | undefined {
  switch (event.name) {
    case "message":
      return event.message.key;
    case "away":
      return `${event.cursor} ${event.ms.toFixed()}`;
    default:
      return event.cursor;
  }
}

export async function works(queue: Queue, stop: AbortSignal): Promise<Stepped> {
  const jobs: Leases = queue.leases("print");
  const [first] = await jobs.receive({ max: 2, visibility: 60, wait: 20 });
  if (first !== undefined) {
    await jobs.extend(first, 60);
    await jobs.release(first, { delay: 5, count: false });
    await jobs.reject(first, "unreadable");
    await jobs.acknowledge(first, first.receipt ?? "");
  }
  await jobs.work((message: Message) => message.json(), { concurrency: 2, signal: stop, onError: (error, { id }) => [error, id] });
  const step: Step = { acknowledge: ["receipt"], append: [{ queue: "results", messages: [{ body: "done" }] }], receive: { pop: true } };
  return jobs.step(step);
}

export function fails(error: unknown): number {
  return error instanceof QueueyError && error.retriable ? error.retryAfter : 0;
}

export function refused(client: Client, queue: Queue): void {
  // @ts-expect-error: the application is missing
  new Client("http://127.0.0.1:5000", { key: "secret" });
  // @ts-expect-error: a queue comes from a client
  new Queue();
  // @ts-expect-error: an object is appended with appendJson
  void queue.append({ deep: 1 });
  // @ts-expect-error: an unknown option
  void queue.append("text", { expires: 60 });
  // @ts-expect-error: seconds are a number
  void queue.append("text", { ttl: "60" });
  // @ts-expect-error: an unknown order
  queue.read({ order: "newest" });
  // @ts-expect-error: a list of queues
  client.follow("letters");
  // @ts-expect-error: what was read stays as it is
  queue.name = "other";
}
