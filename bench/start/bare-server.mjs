/**
 * The smallest HTTP server of Node.js, as the baseline for start and memory. Argument: the port.
 */
import { createServer } from "node:http";

createServer((_request, response) => response.end("ok")).listen(Number(process.argv[2]));
