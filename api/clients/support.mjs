// What the tests of all clients share: the models of the mesh that they run
// against, and the control routes of the stand-ins that serve them.

// None of them may take long: whatever waits, waits for an answer that does not come.
export const patience = { timeout: 30_000 };

// state is what the stand-in of a model says of itself.
export async function state(model) {
  const answer = await fetch(`${process.env.RELAY_TEST_CONTROL}/${model}/sim/state`);
  return answer.json();
}

// faults has the stand-in of a model go wrong.
export async function faults(model, ...list) {
  const answer = await fetch(`${process.env.RELAY_TEST_CONTROL}/${model}/sim/faults`, { method: 'POST', body: JSON.stringify(list) });
  if (!answer.ok) throw new Error(await answer.text());
}

// until waits until something is the case.
export async function until(what, ok, within = 10_000) {
  for (const end = Date.now() + within; !(await ok()); ) {
    if (Date.now() > end) throw new Error(`not within ${within} ms: ${what}`);
    await new Promise((done) => setTimeout(done, 20));
  }
}

// An image of one pixel.
export const pixel = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
