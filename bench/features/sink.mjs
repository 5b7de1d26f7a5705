/**
 * A collector that accepts every export and discards it.
 */
import { createServer } from "node:http";

createServer((req, res) => {
  req.resume();
  req.on("end", () => res.writeHead(200, { "content-type": "application/x-protobuf" }).end());
}).listen(Number(process.argv[2]), "127.0.0.1");
