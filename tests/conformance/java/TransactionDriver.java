import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's Java clients, driven from outside: one command per line of standard input, its words separated by tabs, and
 * one line of standard output as the reply: "= ok" and the results, or "= error" and the names of the exception and of
 * its causes. The commands choose the names of clients. `java_driver.py` is the other end.
 */
public final class TransactionDriver {
    private static final Duration TIMEOUT = Duration.ofSeconds(30);

    private final Map<String, Producer<String, String>> producers = new HashMap<>();
    private final Map<String, Consumer<String, String>> consumers = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        TransactionDriver driver = new TransactionDriver();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println("= " + driver.answer(line.split("\t", -1)));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private String answer(String[] words) {
        List<String> rest = Arrays.asList(words).subList(2, words.length);
        try {
            List<String> told = run(words[0], words[1], rest);
            return told.isEmpty() ? "ok" : "ok\t" + String.join("\t", told);
        } catch (Exception error) {
            return "error\t" + names(error) + "\t" + String.valueOf(error.getMessage()).replaceAll("\\s+", " ");
        }
    }

    private static String names(Throwable error) {
        List<String> names = new ArrayList<>();
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            names.add(cause.getClass().getSimpleName());
        }
        return String.join(",", names);
    }

    private List<String> run(String verb, String name, List<String> words) throws Exception {
        switch (verb) {
            case "producer" -> startProducer(name, words);
            case "begin" -> producers.get(name).beginTransaction();
            case "send" -> send(producers.get(name), words);
            case "offsets" -> sendOffsets(producers.get(name), words);
            case "commit" -> producers.get(name).commitTransaction();
            case "abort" -> producers.get(name).abortTransaction();
            case "drop-producer" -> producers.remove(name).close(Duration.ZERO);
            case "consumer" -> startConsumer(name, words);
            case "drop-consumer" -> consumers.remove(name).close();
            case "take" -> {
                return take(consumers.get(name), Integer.parseInt(words.get(0)));
            }
            case "positions" -> {
                return positions(consumers.get(name));
            }
            case "read" -> {
                return read(name, words);
            }
            default -> throw new IllegalArgumentException(verb);
        }
        return List.of();
    }

    private static Properties properties(List<String> words) {
        Properties properties = new Properties();
        for (String word : words) {
            int split = word.indexOf('=');
            properties.put(word.substring(0, split), word.substring(split + 1));
        }
        return properties;
    }

    private void startProducer(String name, List<String> words) {
        Producer<String, String> producer =
            new KafkaProducer<>(properties(words), new StringSerializer(), new StringSerializer());
        producers.put(name, producer);
        producer.initTransactions();
    }

    private static void send(Producer<String, String> producer, List<String> words) throws Exception {
        int partition = Integer.parseInt(words.get(1));
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (String value : words.subList(2, words.size())) {
            sent.add(producer.send(new ProducerRecord<>(words.get(0), partition, null, value)));
        }
        for (Future<RecordMetadata> one : sent) {
            try {
                one.get();
            } catch (ExecutionException error) {
                throw (Exception) error.getCause();
            }
        }
    }

    /** Words: the consumer, a generation to use instead of its own or empty, then topic, partition and offset of each. */
    private void sendOffsets(Producer<String, String> producer, List<String> words) {
        ConsumerGroupMetadata group = consumers.get(words.get(0)).groupMetadata();
        if (!words.get(1).isEmpty()) {
            int generation = Integer.parseInt(words.get(1));
            group = new ConsumerGroupMetadata(group.groupId(), generation, "unknown-member", Optional.empty());
        }
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (Iterator<String> word = words.listIterator(2); word.hasNext(); ) {
            TopicPartition place = new TopicPartition(word.next(), Integer.parseInt(word.next()));
            offsets.put(place, new OffsetAndMetadata(Long.parseLong(word.next())));
        }
        producer.sendOffsetsToTransaction(offsets, group);
    }

    private void startConsumer(String name, List<String> words) {
        Consumer<String, String> consumer = consumer(words.subList(1, words.size()));
        consumers.put(name, consumer);
        consumer.subscribe(List.of(words.get(0)));
    }

    private static Consumer<String, String> consumer(List<String> words) {
        return new KafkaConsumer<>(properties(words), new StringDeserializer(), new StringDeserializer());
    }

    private static List<String> take(Consumer<String, String> consumer, int count) {
        List<String> values = new ArrayList<>();
        long deadline = System.nanoTime() + TIMEOUT.toNanos();
        while (values.size() < count) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(values.size() + " of " + count + " records");
            }
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                values.add(record.value());
            }
        }
        return values;
    }

    private static List<String> positions(Consumer<String, String> consumer) {
        List<String> words = new ArrayList<>();
        for (TopicPartition place : consumer.assignment()) {
            words.addAll(List.of(place.topic(), "" + place.partition(), "" + consumer.position(place)));
        }
        return words;
    }

    /** Returns all values of a partition up to its end for the isolation level. */
    private static List<String> read(String topic, List<String> words) {
        TopicPartition place = new TopicPartition(topic, Integer.parseInt(words.get(0)));
        List<String> values = new ArrayList<>();
        try (Consumer<String, String> consumer = consumer(words.subList(1, words.size()))) {
            consumer.assign(List.of(place));
            consumer.seekToBeginning(List.of(place));
            long end = consumer.endOffsets(List.of(place)).get(place);
            while (consumer.position(place) < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    values.add(record.value());
                }
            }
        }
        return values;
    }
}
