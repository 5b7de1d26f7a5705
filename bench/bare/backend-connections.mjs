/**
 * Sends requests to a backend over kept TCP connections. It expects responses with a content-length header.
 */
import { connect } from "node:net";

export function createBackend(port) {
  const idle = [];

  function open() {
    const socket = connect({ port, host: "127.0.0.1", noDelay: true });
    const connection = { socket, respond: undefined };
    let received = "";
    socket.on("data", (chunk) => {
      received += chunk.latin1Slice();
      const end = received.indexOf("\r\n\r\n");
      if (end < 0) return;
      const [, length] = /content-length: (\d+)/i.exec(received) ?? [];
      if (received.length < end + 4 + Number(length)) return;
      const response = received;
      received = "";
      idle.push(connection);
      connection.respond(response, end + 4);
    });
    socket.on("error", () => process.exit(1));
    // The backend closes idle connections while other programs are measured.
    socket.on("close", () => {
      const at = idle.indexOf(connection);
      if (at >= 0) idle.splice(at, 1);
    });
    return connection;
  }

  /** `respond` gets the response as text and the offset of its body. */
  return function send(request, respond) {
    const connection = idle.pop() ?? open();
    connection.respond = respond;
    connection.socket.write(request, "latin1");
  };
}
