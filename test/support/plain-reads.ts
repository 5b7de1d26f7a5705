/** Loaded with `--import`: turns the fast reads of the HTTP/1 engine off for the process. */
import { setFastReads } from "../../src/http/h1/socket-reads.ts";

setFastReads(false);
