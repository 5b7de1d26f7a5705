/**
 * A request body as the listener passes it on, filled by a test.
 */
import { RequestBodySource } from "../../src/http/h1/request-body.ts";

export class TestBody extends RequestBodySource {
  constructor() {
    super({
      pauseBody: () => undefined,
      resumeBody: () => process.nextTick(() => this.flush()),
      bodyWaits: () => undefined,
    });
  }

  write(text: string): void {
    this.push(Buffer.from(text));
  }

  finish(text?: string): void {
    if (text !== undefined) this.write(text);
    this.complete();
  }
}
