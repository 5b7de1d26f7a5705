/** Rejects if the work has not ended after this time. The work itself goes on. */
export async function withDeadline(work, maxMs) {
  let timer;
  const passed = new Promise((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`not finished after ${maxMs / 1000} s`)), maxMs);
  });
  try {
    return await Promise.race([work, passed]);
  } finally {
    clearTimeout(timer);
  }
}
