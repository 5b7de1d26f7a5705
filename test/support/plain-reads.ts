/**
 * Loaded with `--import`: disables the fast reads of the HTTP/1 engine in this process.
 */
import { setFastReads } from "../../src/http/h1/socket-reads.ts";

setFastReads(false);
