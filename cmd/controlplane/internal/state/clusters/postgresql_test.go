package clusters_test

import (
	"database/sql"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/clusters"
	"github.com/seed-9e1ffd66/trueup/cmd/controlplane/internal/state/db"
	"github.com/seed-9e1ffd66/trueup/internal/test/pgtest"
)

// onPostgreSQL is the name of the test whose subtests are on PostgreSQL.
const onPostgreSQL = "TestOnPostgreSQLEverythingIsTheSame"

// postgres is the server of that test.
var postgres *pgtest.Server

func TestOnPostgreSQLEverythingIsTheSame(t *testing.T) {
	t.Parallel()
	postgres = pgtest.Shared(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"AClusterShowsItsTokenOnce", TestAClusterShowsItsTokenOnce},
		{"TheAdministrationNeedsItsToken", TestTheAdministrationNeedsItsToken},
		{"OnlyARealChangeRaisesTheGenerationAndByOne", TestOnlyARealChangeRaisesTheGenerationAndByOne},
		{"ARefusedRequestChangesNothing", TestARefusedRequestChangesNothing},
		{"AFullDiskRefusesWritesAndServesReads", TestAFullDiskRefusesWritesAndServesReads},
		{"DeletedServicesStayAsTombstonesUntilTheyArePutAgain", TestDeletedServicesStayAsTombstonesUntilTheyArePutAgain},
		{"EverythingThatIsPutIsServed", TestEverythingThatIsPutIsServed},
		{"PermissionForAMassDeletionReachesTheAgentAndLapses", TestAnApprovedDigestReachesTheAgentAndOutlivesOtherChanges},
		{"ANewEpochAfterARestoreIsServedAndReplacesOldReports", TestANewEpochAfterARestoreIsServedAndReplacesOldReports},
		{"NamespacesAreDecidedOnceAndNeverShared", TestNamespacesAreDecidedOnceAndNeverShared},
		{"ConcurrentChangesGetGaplessGenerationsAndConsistentBodies", TestConcurrentChangesGetGaplessGenerationsAndConsistentBodies},
		{"NoSecretIsEverLogged", TestNoSecretIsEverLogged},
		{"MetricsCountRequestsByRoute", TestMetricsCountRequestsByRoute},
		{"ANewClusterIsServedAnEmptyCompleteState", TestANewClusterIsServedAnEmptyCompleteState},
		{"AServedBodyCutAtAnyByteIsRefusedByTheAgent", TestAServedBodyCutAtAnyByteIsRefusedByTheAgent},
		{"AnUnchangedStateIsAnsweredWithoutABody", TestAnUnchangedStateIsAnsweredWithoutABody},
		{"ATokenOpensItsOwnClusterOnly", TestHostileATokenOpensItsOwnClusterOnly},
		{"ATokenOfAnAgentNeverReachesTheAdministration", TestATokenOfAnAgentNeverReachesTheAdministration},
		{"AuthenticationComesBeforeEverythingElse", TestAuthenticationComesBeforeEverythingElse},
		{"AStreamNamesEachVersionOfThisAndOfAnotherProcess", TestAStreamNamesEachVersionOfThisAndOfAnotherProcess},
		{"AnOlderCopyOfTheDatabaseIsNamedForWhatItIs", TestAnOlderCopyOfTheDatabaseIsNamedForWhatItIs},
		{"StatusIsKeptAndShown", TestStatusIsKeptAndShown},
		{"ADeletedServiceStandsAsPendingUntilTheAgentHasWorkedItOff", TestADeletedServiceStandsAsPendingUntilTheAgentHasWorkedItOff},
		{"TheLastServiceStandsAsDeletedOnceTheAgentHasSaidSo", TestTheLastServiceStandsAsDeletedOnceTheAgentHasSaidSo},
		{"AHeldDeletionIsNotDeleted", TestAHeldDeletionIsNotDeleted},
		{"WhatFailsForTheClusterIsThatOfItsNewestReport", TestWhatFailsForTheClusterIsThatOfItsNewestReport},
		{"ATombstoneIsAnIdentityAlone", TestATombstoneIsAnIdentityAlone},
		{"ATombstoneEndsWhenItIsOldAndProvenGone", TestATombstoneEndsWhenItIsOldAndProvenGone},
		{"ATombstoneOfAProjectEndsByTheSameRule", TestATombstoneOfAProjectEndsByTheSameRule},
		{"TombstonesOfManyProjectsEnd", TestTombstonesOfManyProjectsEnd},
		{"OneServiceWithoutAProofHidesNoOther", TestOneServiceWithoutAProofHidesNoOther},
		{"CapacityIsKeptAndGathered", TestCapacityIsKeptAndGathered},
		{"OnlyTheNewestCapacityIsKept", TestOnlyTheNewestCapacityIsKept},
		{"ABadCapacityReportIsRefused", TestABadCapacityReportIsRefused},
		{"ARecordIsStoredOnce", TestARecordIsStoredOnce},
		{"ABadRecordAmongGoodOnesIsListed", TestABadRecordAmongGoodOnesIsListed},
		{"ABatchThatCannotBeReadIsRefusedWhole", TestABatchThatCannotBeReadIsRefusedWhole},
		{"AFullBatchIsStored", TestAFullBatchIsStored},
		{"AClusterCannotBillTheProjectOfAnother", TestAClusterCannotBillTheProjectOfAnother},
		{"ConcurrentBatchesOfTwoAgentsStoreEachRecordOnce", TestConcurrentBatchesOfTwoAgentsStoreEachRecordOnce},
		{"RecordsAreKeptForTheirTimeAndOutliveTheirCluster", TestRecordsAreKeptForTheirTimeAndOutliveTheirCluster},
		{"AServiceThatWasNeverReportedIsShownAsUnknown", TestAServiceThatWasNeverReportedIsShownAsUnknown},
		{"AServiceTheDatabaseDoesNotKnowCanBeReported", TestAServiceTheDatabaseDoesNotKnowCanBeReported},
		{"ABadStatusReportIsRefusedWhole", TestABadStatusReportIsRefusedWhole},
		{"AWrongMethodIsAnsweredWithTheRightOnes", TestAWrongMethodIsAnsweredWithTheRightOnes},
		{"ARotatedTokenReplacesTheOldOne", TestARotatedTokenReplacesTheOldOne},
		{"AClusterIsRemovedOnlyWhenItIsEmptyAndSilent", TestAClusterIsRemovedOnlyWhenItIsEmptyAndSilent},
		{"ARegionIsRemovedOnlyWhenItIsEmptyAndSilent", TestARegionIsRemovedOnlyWhenItIsEmptyAndSilent},
		{"WhatCanBePutCanBeRead", TestWhatCanBePutCanBeRead},
		{"EachChangeHasOneEntryAndNothingElseHas", TestEachChangeHasOneEntryAndNothingElseHas},
		{"AChangeAndItsEntryAreOneTransaction", TestAChangeAndItsEntryAreOneTransaction},
		{"TheAuditIsReadByObjectActorAndTime", TestTheAuditIsReadByObjectActorAndTime},
		{"ListsAreReadInParts", TestListsAreReadInParts},
		{"EachClusterHasItsSilenceAndLagUntilItIsRemoved", TestEachClusterHasItsSilenceAndLagUntilItIsRemoved},
		{"AnAgentIsTheActorOfWhatItEnds", TestAnAgentIsTheActorOfWhatItEnds},
		{"WhatIsGivenUpIsRemovedWithItsProjects", TestWhatIsGivenUpIsRemovedWithItsProjects},
		{"AGenerationThatIsGivenAgainAfterARestoreIsNotTheOneThatWasLost", TestAGenerationThatIsGivenAgainAfterARestoreIsNotTheOneThatWasLost},
	} {
		t.Run(test.name, test.run)
	}
}

// openEither opens a new store: on PostgreSQL for the subtests of that test, in
// the file elsewhere.
func openEither(t *testing.T, path string) *clusters.Store {
	t.Helper()
	if !strings.HasPrefix(t.Name(), onPostgreSQL+"/") {
		return openStore(t, path)
	}
	return openPostgreSQL(t, postgres.Database(t))
}

func openPostgreSQL(t *testing.T, url string) *clusters.Store {
	t.Helper()
	database, err := db.PostgreSQL{URL: url}.Open(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, database.Close()) })
	return &clusters.Store{Database: database}
}

func TestPostgreSQLIsPreparedOnceByMany(t *testing.T) {
	t.Parallel()
	url := pgtest.NewDatabase(t)
	var group sync.WaitGroup
	stores := make([]*clusters.Store, 4)
	for n := range stores {
		group.Go(func() {
			store, err := db.PostgreSQL{URL: url}.Open(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			stores[n] = &clusters.Store{Database: store}
		})
	}
	group.Wait()
	require.False(t, t.Failed())
	_, _, err := stores[0].RegisterCluster(t.Context(), clusterA, "nyc3")
	require.NoError(t, err)
	for _, store := range stores {
		clusters, err := store.Clusters(t.Context())
		require.NoError(t, err)
		require.Len(t, clusters, 1)
		require.NoError(t, store.Database.Close())
	}

	pool, err := sql.Open("pgx", url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	_, err = pool.ExecContext(t.Context(), `INSERT INTO controlplane_schema (version) VALUES (99)`)
	require.NoError(t, err)
	_, err = db.PostgreSQL{URL: url}.Open(t.Context())
	require.ErrorIs(t, err, db.ErrNewerSchema)
}
