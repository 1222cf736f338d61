/** System transactions: what a thread does to files is published as a whole, or has never happened. */
module txos {
    exports txos;
}
