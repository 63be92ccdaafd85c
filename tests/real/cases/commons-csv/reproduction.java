package org.apache.commons.csv;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.IOException;
import java.util.Arrays;

import org.junit.jupiter.api.Test;

public class DoubleDelimiterTest {

    private static void assertValues(final String line, final String... expected) throws IOException {
        final CSVFormat format = CSVFormat.Builder.create().setDelimiter("||").build();
        try (CSVParser parser = CSVParser.parse(line, format)) {
            assertEquals(Arrays.asList(expected), parser.iterator().next().toList());
        }
    }

    @Test
    public void testEmptyValuesAreKept() throws IOException {
        assertValues("a||b||||d", "a", "b", "", "d");
    }

    @Test
    public void testLastValueMayBeEmpty() throws IOException {
        assertValues("a||b||", "a", "b", "");
    }
}
