// Sends, receives and deletes by the SDK, which compares MD5 sums of bodies. The argument is the endpoint.
const { SQS, QueueDoesNotExist } = require("@aws-sdk/client-sqs");

async function main(endpoint) {
  const sqs = new SQS({ endpoint });
  const created = await sqs.createQueue({ QueueName: "javascript.fifo", Attributes: { FifoQueue: "true" } });
  const at = { QueueUrl: created.QueueUrl };
  const attributes = {
    text: { DataType: "String", StringValue: "Bär" },
    number: { DataType: "Number.int", StringValue: "4" },
    bytes: { DataType: "Binary", BinaryValue: Uint8Array.of(0, 1, 255) },
  };
  await sqs.sendMessage({
    ...at,
    MessageBody: "one",
    MessageGroupId: "g",
    MessageDeduplicationId: "1",
    MessageAttributes: attributes,
  });
  await sqs.sendMessageBatch({
    ...at,
    Entries: ["one", "two"].map((body, number) => ({
      Id: body,
      MessageBody: body,
      MessageGroupId: "g",
      MessageDeduplicationId: String(number + 1),
    })),
  });
  const asked = { ...at, MaxNumberOfMessages: 10, WaitTimeSeconds: 5, MessageAttributeNames: ["All"] };
  const { Messages } = await sqs.receiveMessage({ ...asked, MessageSystemAttributeNames: ["All"] });
  for (const { Body, MessageAttributes = {}, Attributes } of Messages) {
    const bytes = [...(MessageAttributes.bytes?.BinaryValue ?? [])];
    console.log(Body, Object.keys(MessageAttributes).sort().join(), bytes.join(), Attributes.ApproximateReceiveCount);
  }
  const Entries = Messages.map(({ ReceiptHandle }, number) => ({ Id: String(number), ReceiptHandle }));
  const deleted = await sqs.deleteMessageBatch({ ...at, Entries });
  console.log(deleted.Successful.length, (await sqs.receiveMessage(at)).Messages);
  try {
    await sqs.getQueueUrl({ QueueName: "none" });
  } catch (refused) {
    console.log(refused instanceof QueueDoesNotExist, refused.name, refused.message);
  }
}

main(process.argv[2]).catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
