import java.net.URI;
import java.util.Map;
import software.amazon.awssdk.core.SdkBytes;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.model.MessageAttributeValue;
import software.amazon.awssdk.services.sqs.model.MessageSystemAttributeName;
import software.amazon.awssdk.services.sqs.model.QueueAttributeName;
import software.amazon.awssdk.services.sqs.model.QueueDoesNotExistException;
import software.amazon.awssdk.services.sqs.model.SendMessageBatchRequestEntry;

/** Sends, receives and deletes by the SDK, which compares MD5 sums of bodies and attributes. The argument is the endpoint. */
public class RoundTrip {
    public static void main(String[] arguments) {
        try (SqsClient sqs = SqsClient.builder().endpointOverride(URI.create(arguments[0])).build()) {
            String url = sqs.createQueue(b -> b.queueName("java").attributes(
                Map.of(QueueAttributeName.VISIBILITY_TIMEOUT, "60"))).queueUrl();
            Map<String, MessageAttributeValue> attributes = Map.of(
                "text", MessageAttributeValue.builder().dataType("String").stringValue("Bär").build(),
                "number", MessageAttributeValue.builder().dataType("Number.int").stringValue("4").build(),
                "bytes", MessageAttributeValue.builder().dataType("Binary")
                    .binaryValue(SdkBytes.fromByteArray(new byte[] {0, 1, (byte) 255})).build());
            sqs.sendMessage(b -> b.queueUrl(url).messageBody("one").messageAttributes(attributes));
            sqs.sendMessageBatch(b -> b.queueUrl(url).entries(
                SendMessageBatchRequestEntry.builder().id("a").messageBody("two").messageAttributes(attributes).build(),
                SendMessageBatchRequestEntry.builder().id("b").messageBody("three").build()));
            var found = sqs.receiveMessage(b -> b.queueUrl(url).maxNumberOfMessages(10).waitTimeSeconds(5)
                .messageAttributeNames("All").messageSystemAttributeNames(MessageSystemAttributeName.ALL)).messages();
            for (var message : found) {
                System.out.println(message.body() + " " + message.messageAttributes().keySet().stream().sorted().toList());
                sqs.deleteMessage(b -> b.queueUrl(url).receiptHandle(message.receiptHandle()));
            }
            System.out.println(sqs.receiveMessage(b -> b.queueUrl(url)).messages());
            try {
                sqs.getQueueUrl(b -> b.queueName("none"));
            } catch (QueueDoesNotExistException refused) {
                System.out.println(refused.awsErrorDetails().errorCode());
            }
        }
    }
}
