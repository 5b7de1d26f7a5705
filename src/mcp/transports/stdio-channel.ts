/**
 * A child process as a channel: one message per line. Lines that are no messages are counted and left out, since
 * many programs print a greeting to stdout before they speak the protocol.
 */

import { InOrder } from "../../base/in-order.ts";
import { SLICED_BYTES } from "../../base/turns.ts";
import { singleLine } from "../../json/json-text.ts";
import type { Logger } from "../../observe/log/logger.ts";
import { withoutSecrets } from "../../observe/trace/redact.ts";
import type { Channel, ChannelHandlers, Outgoing } from "./channel.ts";
import { StdioProcess, type StdioProcessOptions } from "./child-process.ts";
import { type ReadMessages, readServerTextInSteps, reportBroken } from "./incoming.ts";

export function openStdioChannel(options: StdioProcessOptions, handlers: ChannelHandlers, gone: () => void): Channel {
  const logger: Logger = options.logger;
  const shown = (text: string): string => withoutSecrets(text, options.secrets);
  let isClosed = false;
  let isPaused = false;
  let ignoredLines = 0;
  const ignore = (reason: string, text: string): void => {
    ignoredLines += 1;
    if (ignoredLines > 10) return;
    const fields = { target: options.name, reason, line: shown(text).slice(0, 200) };
    // Once for people: a server that logs to stdout, or does not speak MCP at all, is silent otherwise.
    if (ignoredLines === 1) logger.info("ignored a line on stdout: MCP servers must log to stderr", fields);
    else logger.debug("ignored a line on stdout", fields);
  };
  const address = `stdio:${options.name}`;
  const send = (message: Outgoing): void => {
    const line = singleLine(message.text);
    message.wire?.attempt(address, { over: "stdio", line });
    child.write(line, message.isAlone);
  };
  const read = (messages: ReadMessages, text: string): void => {
    if (isClosed) return;
    if (messages.length === 0) ignore("a line on stdout is no JSON-RPC message", text);
    for (const message of messages) {
      if (message.kind !== "broken") handlers.message(message, undefined);
      else {
        ignore(message.reason, text);
        reportBroken(message, handlers, send);
      }
    }
  };
  const follow = (): void => {
    if (isPaused || lines.isBusy) child.pause();
    else child.resume();
  };
  const lines = new InOrder({
    busy: follow,
    idle: follow,
    failed: () => child.kill("was stopped because its output could not be handled"),
    isOver: () => isClosed,
  });
  const child = new StdioProcess(options, {
    line(text) {
      if (isClosed) return;
      lines.run(readServerTextInSteps(text), text.length <= SLICED_BYTES, (messages) => read(messages, text));
    },
    afterParsing: (parsed) => lines.afterwards(parsed),
    exited(reason) {
      void stop();
      lines.afterwards(() => {
        if (!isClosed) handlers.closed(reason);
      });
    },
  });
  // Asynchronous also in what it throws: a process that cannot be stopped must not keep its end from being told.
  const stop = async (): Promise<void> => {
    await child.stop();
    gone();
  };
  return {
    address,
    get isClogged() {
      return child.isClogged;
    },
    speak: () => undefined,
    send,
    abandon: () => undefined,
    pause() {
      isPaused = true;
      follow();
    },
    resume() {
      isPaused = false;
      follow();
    },
    close() {
      isClosed = true;
      return stop();
    },
    lastWords: () => child.stderrLines(),
    detail: () => ({
      pid: child.pid,
      memoryBytes: child.memoryBytes(),
      stderr: child.stderrLines(),
      ...(ignoredLines > 0 ? { ignoredLines } : {}),
    }),
  };
}
