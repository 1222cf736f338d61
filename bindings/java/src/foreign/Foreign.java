import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import org.apache.lucene.analysis.standard.StandardAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexNotFoundException;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.SerialMergeScheduler;
import org.apache.lucene.store.Directory;
import org.apache.lucene.store.NIOFSDirectory;
import txos.Options;
import txos.Transactions;

/** A database and a search index of others, changed in one transaction: both, or none of the two. */
public class Foreign {
    public static void main(String[] args) throws Exception {
        Path dir = Path.of(args[0]);
        Options options = Options.DEFAULT.durable(false);
        for (String name : List.of("Ada", "Bob")) {
            try {
                Transactions.run(options, () -> {
                    change(dir, "not " + name);
                    throw new IllegalStateException();
                });
            } catch (IllegalStateException e) {
                System.out.println("aborted: " + rows(dir) + ", " + documents(dir) + " documents");
            }
            Transactions.run(options, () -> change(dir, name));
            System.out.println("committed: " + rows(dir) + ", " + documents(dir) + " documents");
        }
    }

    private static void change(Path dir, String name) throws Exception {
        try (Connection connection = DriverManager.getConnection("jdbc:sqlite:" + dir.resolve("db"))) {
            connection.createStatement().execute("create table if not exists people (name text)");
            connection.createStatement().execute("insert into people values ('" + name + "')");
        }
        IndexWriterConfig config = new IndexWriterConfig(new StandardAnalyzer());
        try (Directory index = new NIOFSDirectory(dir.resolve("index"));
                IndexWriter writer = new IndexWriter(index, config.setMergeScheduler(new SerialMergeScheduler()))) {
            for (int i = 0; i < 50; i++) {
                Document document = new Document();
                document.add(new TextField("text", name + " " + i, Field.Store.YES));
                writer.addDocument(document);
            }
            writer.commit();
        }
    }

    private static List<String> rows(Path dir) throws SQLException {
        List<String> rows = new ArrayList<>();
        if (Files.exists(dir.resolve("db"))) {
            try (Connection connection = DriverManager.getConnection("jdbc:sqlite:" + dir.resolve("db"));
                    ResultSet found = connection.createStatement().executeQuery("select name from people")) {
                while (found.next()) {
                    rows.add(found.getString(1));
                }
            }
        }
        return rows;
    }

    private static int documents(Path dir) throws Exception {
        if (!Files.exists(dir.resolve("index"))) {
            return 0;
        }
        try (Directory index = new NIOFSDirectory(dir.resolve("index"));
                DirectoryReader reader = DirectoryReader.open(index)) {
            return reader.numDocs();
        } catch (IndexNotFoundException e) {
            return 0;
        }
    }
}
