/**
 * What the listener knows of one client connection: which requests wait for the answers before them, and whether
 * anything that follows is still a request. Requests, upgrades, CONNECT and broken heads all wait in this one line:
 * answers go out in the order of the requests, and a client that pipelines cannot open many backend connections.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";

/** What waits: a request that Node still reads for us, or something that needs the socket itself. */
interface Turn {
  readonly isRequest: boolean;
  begin(): void;
}

/** Node keeps the response that is being written here; there is no public name for it. */
interface AnsweringSocket extends Socket {
  readonly _httpMessage?: ServerResponse | null;
  /** Node stopped reading until its answers are out; it would pause every resume until then. */
  _paused?: boolean;
  readonly _handle?: { reading: boolean; readStart(): void } | null;
}

const KNOWN = new WeakMap<object, ClientConnection>();

export class ClientConnection {
  readonly socket: AnsweringSocket;
  /** It ends with the answer that is being given: what follows may as well be the rest of a refused request. */
  isClosing = false;
  /** Its last turn is in the line: an upgrade, a CONNECT, or a message that cannot be read. */
  hasLastTurn = false;
  /** The request whose head was read last. */
  latest: IncomingMessage | undefined = undefined;
  #waiting: Turn[] | undefined = undefined;
  #isHandedOver = false;

  constructor(socket: Socket) {
    this.socket = socket;
  }

  static of(socket: Socket): ClientConnection {
    const known = KNOWN.get(socket);
    if (known !== undefined) return known;
    const connection = new ClientConnection(socket);
    KNOWN.set(socket, connection);
    return connection;
  }

  /** The response that the socket belongs to. */
  get answering(): ServerResponse | undefined {
    return this.socket._httpMessage ?? undefined;
  }

  /** Begins when the answers before it are out; never, if the connection ends first. */
  holdRequest(res: ServerResponse, begin: () => void): void {
    this.#push({
      isRequest: true,
      begin: () => {
        // Without its socket the connection was closed after the answer before.
        if (res.socket !== null) begin();
      },
    });
    // What was read already is bounded by the size of one read.
    this.socket.pause();
  }

  /** The last thing that is done on the connection as it is: at once if every answer is out. */
  lastTurn(begin: () => void): void {
    if (this.isClosing || this.hasLastTurn) return;
    this.hasLastTurn = true;
    if (this.answering === undefined && this.#waiting === undefined) begin();
    else {
      this.#push({
        isRequest: false,
        begin: () => {
          if (!this.isClosing && this.socket.writable) begin();
        },
      });
    }
  }

  /** Takes out the request that was to wait longest, because its body turned out to be broken. */
  dropLastHeld(): boolean {
    return this.#waiting?.pop() !== undefined;
  }

  /** An answer has ended. */
  next(): void {
    const waiting = this.#waiting;
    if (waiting === undefined) return;
    const turn = waiting.shift();
    if (waiting.length === 0) {
      this.#waiting = undefined;
      if (turn?.isRequest) this.socket.resume();
    }
    turn?.begin();
  }

  /**
   * Node has let go of the socket, but answers may still be under way on it: errors must not be thrown, and whoever
   * waits until the client takes more must hear of it.
   */
  handedOver(): void {
    // Set by the answer before, for the pause between two requests.
    this.socket.setTimeout(0);
    this.socket._paused = false;
    // While requests waited, Node stopped reading below the stream, and took away what would start it again.
    const { _handle: handle } = this.socket;
    if (handle && !handle.reading) {
      handle.reading = true;
      handle.readStart();
    }
    if (this.#isHandedOver) return;
    this.#isHandedOver = true;
    this.socket.on("error", ignore);
    this.socket.on("drain", () => {
      const { answering } = this;
      if (answering !== undefined && !answering.writableEnded) answering.emit("drain");
    });
  }

  /** Node reads requests from it again. */
  handBack(): void {
    this.hasLastTurn = false;
    this.socket.setTimeout(0);
    // Node adds its own each time it takes a socket.
    this.socket.removeAllListeners("timeout");
  }

  #push(turn: Turn): void {
    if (this.#waiting === undefined) this.#waiting = [turn];
    else this.#waiting.push(turn);
  }
}

function ignore(): void {
  // The close event that follows says what there is to say.
}
