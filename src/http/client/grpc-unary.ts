/**
 * Makes unary gRPC calls with a timeout on the gateway's clock.
 */
import type { Client, MethodDefinition, ServiceError } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";

export interface UnaryOptions {
  readonly clock: Clock;
  readonly timeoutMs: number;
}

/** Rejects if the service does not send a response within the timeout. */
export function callUnary<Request, Response>(
  client: Client,
  method: MethodDefinition<Request, Response>,
  request: Request,
  { clock, timeoutMs }: UnaryOptions,
): Promise<Response> {
  return new Promise((resolve, reject) => {
    const timer = clock.after(timeoutMs, () => {
      reject(new Error(`no response within ${timeoutMs} ms`));
      call.cancel();
    });
    const call = client.makeUnaryRequest(
      method.path,
      method.requestSerialize,
      method.responseDeserialize,
      request,
      (error: ServiceError | null, response?: Response) => {
        timer.cancel();
        if (error || !response) reject(error ?? new Error("an empty response"));
        else resolve(response);
      },
    );
  });
}
