/**
 * Runs the last step before a backend is called. The backend parses the body first, because rules and limits may depend
 * on it.
 */
import type { Backend, Prepared, PreparedCall } from "../../core/backend.ts";
import type { CompiledScope } from "../../core/policy.ts";
import type { Reply } from "../../core/reply.ts";
import { type BodyRules, readBodies } from "./body-rules.ts";
import { inspectBody, type SightRun } from "./llm-sight.ts";
import { type RequestRun, runAdmission } from "./run-hooks.ts";

export interface BeforeCallRun extends SightRun, InnerRun {
  readonly rules: BodyRules;
  askForBody(): void;
  /** Called after the last policy that can reject the request. */
  admitted(): void;
  reply(reply: Reply): void;
}

/** `call` runs the prepared call after the last rule. */
export function beforeCall(
  run: BeforeCallRun,
  backend: Backend,
  entered: readonly CompiledScope[],
  call: (prepared: PreparedCall) => void,
): void {
  prepare(run, backend, entered, (prepared) => {
    const reach = (): void => {
      if (prepared.scopes === undefined) call(prepared);
      else passInner(run, prepared.scopes(), () => call(prepared));
    };
    if (backend.parsesBody) run.rules.pass(entered, entered, reach);
    else if (readBodies(entered)) inspectBody(run, entered, (charged) => run.rules.pass(entered, charged, reach));
    else reach();
  });
}

function prepare(
  run: BeforeCallRun,
  backend: Backend,
  entered: readonly CompiledScope[],
  next: (prepared: PreparedCall) => void,
): void {
  if (backend.parsesBody && run.exchange.request.body.kind === "stream") run.askForBody();
  const done = (prepared: Prepared): void => {
    // The client may have disconnected in the meantime.
    if (run.exchange.isOver) return;
    if ("status" in prepared) answer(run, entered, prepared);
    else next(prepared);
  };
  const failed = (error: unknown): void => run.rules.admit(entered, () => run.fail(error));
  let result: Prepared | Promise<Prepared>;
  try {
    result = backend.prepare(run.exchange, {
      model: entered.some(({ sight }) => sight.model),
      call: entered.some(({ sight }) => sight.call),
    });
  } catch (error) {
    failed(error);
    return;
  }
  if (result instanceof Promise) result.then(done, failed).catch(run.fail);
  else done(result);
}

/** A rejection by the backend skips the rules, but limits count it. */
function answer(run: BeforeCallRun, entered: readonly CompiledScope[], reply: Reply): void {
  if (reply.status >= 400) run.rules.admit(entered, () => run.reply(reply));
  else
    run.rules.passUncalled(entered, () => {
      run.admitted();
      run.reply(reply);
    });
}

export interface InnerRun extends RequestRun {
  readonly rules: BodyRules;
  enter(scope: CompiledScope): void;
  pass(scope: CompiledScope, list: "access" | "shape", next: () => void): void;
}

/** Runs the policies of scopes inside a backend, for example of one model. */
export function passInner(run: InnerRun, scopes: readonly CompiledScope[], call: () => void): void {
  const passFrom = (at: number): void => {
    const scope = scopes[at];
    if (scope === undefined) call();
    else passScope(run, scope, () => passFrom(at + 1));
  };
  passFrom(0);
}

function passScope(run: InnerRun, scope: CompiledScope, next: () => void): void {
  const { rules, isNew } = run.rules.inside(scope);
  run.enter(scope);
  const reach = (): void => run.pass(scope, "shape", () => rules.pass([scope], [scope], next));
  run.pass(scope, "access", () => {
    if (isNew && scope.admit.head.length > 0) runAdmission(run, "head", scope.admit.head, reach);
    else reach();
  });
}
